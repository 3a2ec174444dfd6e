"""What a power cut can leave of a simulated disk: every mix of states that its unsynced changes allow.

The rules are those of file systems that promise no more than their sync calls do. Each name is in any state it had
since its folder was synced. Each file has any size, and each of its 512-byte sectors any content, that it had since it
was synced; a sector that was still to be written can be torn between two of its states at a word of four bytes; where
a size is kept and the content is not, zeros are read. A rename never loses both names of a file that had one for sure.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.benchmarks.crash.disk import Node, SimulatedDisk

SECTOR = 512
WORD = 4
KINDS = ("whole", "short", "hole", "torn", "names")
"""Of least to most damage: nothing lost, a size lost, content lost (zeros or an older state), a torn sector, a name."""
FEW_BYTES = 160
"""A write up to this long is cut at every byte where all images are made; a longer one at sectors and odd bytes."""


@dataclass(frozen=True, slots=True)
class Image:
    """Files by name as a machine finds them when it starts again; None: no folder. `kind` is one of KINDS."""

    files: dict[str, bytes] | None
    kind: str


class _Content(NamedTuple):
    data: bytes
    rank: int


def every_image(disk: SimulatedDisk, most: int) -> list[Image] | None:
    """All images of this moment, each once; None where there may be more than `most`."""
    if not disk.folder:
        return [Image(None, "whole")]
    per_name: list[list[tuple[str, _Content | None, int]]] = []
    total = 1
    for name in sorted(disk.nodes.keys() | disk.history.keys()):
        states = _states(disk, name)
        options: dict[bytes | None, tuple[str, _Content | None, int]] = {}
        for at, node in enumerate(states):
            lost = KINDS.index("names") if at < len(states) - 1 else 0
            if node is None:
                options.setdefault(None, (name, None, lost))
                continue
            contents = _contents(node, most)
            if contents is None:
                return None
            for content in contents:
                known = options.get(content.data)
                if known is None or max(content.rank, lost) < known[2]:
                    options[content.data] = (name, content, max(content.rank, lost))
        per_name.append(list(options.values()))
        total *= len(options)
        if total > most:
            return None
    images = (_image(choice) for choice in itertools.product(*per_name))
    found = [image for image in images if not _lost_rename(disk, image)]
    return found if disk.folder_durable else [Image(None, "names"), *found]


def some_images(disk: SimulatedDisk, count: int, rng: random.Random) -> Iterator[Image]:
    """`count` images of this moment by chance; one may come more than once. The folder is there."""
    for _ in range(count):
        if not disk.folder_durable and rng.random() < 0.1:
            yield Image(None, "names")
            continue
        while True:
            image = _image([_any_state(disk, name, rng) for name in sorted(disk.nodes.keys() | disk.history.keys())])
            if not _lost_rename(disk, image):
                break
        yield image


def _states(disk: SimulatedDisk, name: str) -> list[Node | None]:
    return disk.history.get(name) or [disk.nodes[name]]


def _image(choice: list[tuple[str, _Content | None, int]] | tuple[tuple[str, _Content | None, int], ...]) -> Image:
    files = {name: content.data for name, content, _ in choice if content is not None}
    return Image(files, KINDS[max((rank for _, _, rank in choice), default=0)])


def _lost_rename(disk: SimulatedDisk, image: Image) -> bool:
    """Whether a file whose old name was durable has neither its old nor its new name."""
    files = image.files or {}
    durable = [pair for pair in disk.renamed if disk.history[pair[0]][0] is not None]
    return any(old not in files and new not in files for old, new in durable)


# One file


def _sizes(node: Node) -> list[int]:
    """Sizes the file may have: those it had, and those at which a growing write may have stopped."""
    sizes = {len(version) for version in node.versions}
    for before, after in itertools.pairwise(node.versions):
        low, high = sorted((len(before), len(after)))
        if high - low <= FEW_BYTES:
            sizes.update(range(low, high))
        else:
            sizes.update(range((low // SECTOR + 1) * SECTOR, high, SECTOR))
            sizes.update((low + 1, low + WORD + 2, high - 1))
    return sorted(sizes)


def _sector(version: bytes, at: int) -> bytes:
    return version[at : at + SECTOR].ljust(SECTOR, b"\0")


def _sector_states(node: Node, at: int) -> list[bytes]:
    """Distinct states of the sector at byte `at`, oldest first, the last one last."""
    states: list[bytes] = []
    for version in reversed(node.versions):
        state = _sector(version, at)
        if state not in states:
            states.append(state)
    return states[::-1]


def _torn(old: bytes, new: bytes, word: int) -> bytes:
    return new[: word * WORD] + old[word * WORD :]


def _tears(states: list[bytes]) -> list[bytes]:
    """Each two states torn in the middle of where they differ, either part being the newer."""
    torn = []
    for old, new in itertools.combinations(states, 2):
        differ = [word for word in range(SECTOR // WORD) if old[word * WORD :][:WORD] != new[word * WORD :][:WORD]]
        middle = differ[len(differ) // 2]
        torn += [_torn(old, new, middle), _torn(new, old, middle)]
    return [state for state in dict.fromkeys(torn) if state not in states]


def _contents(node: Node, most: int) -> list[_Content] | None:
    """Every content the file can have, each once, at its least rank; None where there may be more than `most`."""
    last, total = node.content, 0
    found: dict[bytes, int] = {last: 0}
    sectors: dict[int, list[tuple[bytes, int]]] = {}
    plans: list[tuple[int, list[list[tuple[bytes, int]]]]] = []
    for size in _sizes(node) if len(node.versions) > 1 else ():
        options = []
        for at in range(0, size, SECTOR):
            if at not in sectors:
                sectors[at] = _ranked(node, at)
            # States that differ only past the size are one.
            seen = {state[: size - at]: rank for state, rank in reversed(sectors[at])}
            seen[_sector(last, at)[: size - at]] = 0
            options.append(list(seen.items()))
        plans.append((KINDS.index("short") if size < len(last) else 0, options))
        total += math.prod(map(len, options))
        if total > most:
            return None
    for least, options in plans:
        for choice in itertools.product(*options):
            data = b"".join(state for state, _ in choice)
            rank = max([least, *(rank for _, rank in choice)])
            if rank < found.get(data, len(KINDS)):
                found[data] = rank
    return [_Content(data, rank) for data, rank in found.items()]


def _ranked(node: Node, at: int) -> list[tuple[bytes, int]]:
    """States of a sector with their ranks: the last one, older ones, torn ones."""
    states = _sector_states(node, at)
    held = [(state, KINDS.index("hole")) for state in states[:-1]]
    return [*held, (states[-1], 0), *((state, KINDS.index("torn")) for state in _tears(states))]


def _any_state(disk: SimulatedDisk, name: str, rng: random.Random) -> tuple[str, _Content | None, int]:
    states = _states(disk, name)
    at = rng.randrange(len(states))
    lost = KINDS.index("names") if at < len(states) - 1 else 0
    node = states[at]
    if node is None:
        return name, None, lost
    content = _any_content(node, rng)
    return name, content, max(content.rank, lost)


def _any_content(node: Node, rng: random.Random) -> _Content:
    """One content: any size, each sector any of its states, one in five torn at any word."""
    if len(node.versions) == 1:
        return _Content(node.content, 0)
    last, rank = node.content, 0
    low, high = min(map(len, node.versions)), max(map(len, node.versions))
    size = rng.choice((len(rng.choice(node.versions)), high, rng.randint(low, high)))
    parts = []
    for at in range(0, size, SECTOR):
        states = _sector_states(node, at)
        state, now = rng.choice(states), _sector(last, at)[: size - at]
        if len(states) > 1 and rng.random() < 0.2:
            old, new = rng.sample(states, 2)
            state = _torn(old, new, rng.randrange(1, SECTOR // WORD))
            rank = max(rank, KINDS.index("torn") if state[: size - at] != now else 0)
        elif state[: size - at] != now:
            rank = max(rank, KINDS.index("hole"))
        parts.append(state[: size - at])
    return _Content(b"".join(parts), max(rank, KINDS.index("short") if size < len(last) else 0))
