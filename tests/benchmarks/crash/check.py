"""One image, opened as a server would after the power came back, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from tensorfold.domain.recall.layout import ID_BYTES, SEPARATOR, Ids
from tests.benchmarks.crash.disk import SimulatedDisk
from tests.benchmarks.crash.images import Image
from tests.benchmarks.crash.journal import Journal, chunk_sequence, decode
from tests.benchmarks.crash.writer import Shape, store_on
from tests.fakes.clock import FakeClock


@dataclass(slots=True)
class Verdict:
    """What opening an image showed. `loaded` by sequence; `lost` ids inside the window; `broken` promises, in words.

    `never_written` counts chunks with ids that nobody wrote there.
    """

    loaded: dict[int, Ids] = field(default_factory=dict)
    lost: int = 0
    never_written: int = 0
    broken: list[str] = field(default_factory=list)


def check(image: Image, journal: Journal, shape: Shape) -> Verdict:
    """Open an image without flipped bits as a writer, and hold what was read against the journal."""
    verdict, disk = opened(image, shape)
    if verdict.broken:
        return verdict
    files = image.files or {}
    present = sorted(sequence for name in files if (sequence := chunk_sequence(name)) is not None)
    evicted = present[: max(0, len(present) - shape.chunks)]
    for sequence, ids in verdict.loaded.items():
        wrong = journal.strange(sequence, ids)
        if wrong is not None:
            verdict.never_written += 1
            verdict.broken.append(wrong)
    verdict.lost, lost_promises = journal.missing(verdict.loaded, evicted)
    verdict.broken += lost_promises
    verdict.broken += _unread(files, verdict.loaded, set(present) - set(evicted), shape)
    verdict.broken += _over_budget(disk, shape)
    return verdict


def opened(image: Image, shape: Shape) -> tuple[Verdict, SimulatedDisk]:
    """What a writer reads from an image, and the disk after it."""
    verdict = Verdict()
    disk = SimulatedDisk(image.files)
    store = store_on(disk, shape, FakeClock())
    try:
        state = store.open()
        verdict.loaded = {chunk.sequence: chunk.ids for chunk in store.chunks()}
        store.close()
    except Exception as error:
        verdict.broken.append(f"it does not open: {type(error).__name__}: {error}")
        return verdict, disk
    if state.state != "on":
        verdict.broken.append(f"it opens as {state.state}: {state.reason}")
    return verdict, disk


def read_by_a_reader(image: Image, shape: Shape) -> dict[int, Ids]:
    """What a server that may only read finds; AssertionError when it changed anything."""
    disk = SimulatedDisk(image.files)
    store = store_on(disk, shape, FakeClock(), read_only=True)
    store.open()
    loaded = {chunk.sequence: chunk.ids for chunk in store.chunks()}
    store.close()
    assert disk.changes == 0, "a reader changed the folder"
    return loaded


def equal_ids(one: Mapping[int, Ids], other: Mapping[int, Ids]) -> int:
    """How many words differ between two loads, separators at the end and empty chunks left aside."""
    differ = 0
    for sequence in one.keys() | other.keys():
        a, b = (_plain(load.get(sequence)) for load in (one, other))
        length = max(len(a), len(b))
        a, b = (np.pad(ids, (0, length - len(ids)), constant_values=SEPARATOR) for ids in (a, b))
        differ += int(np.count_nonzero(a != b))
    return differ


def _plain(ids: Ids | None) -> Ids:
    return np.empty(0, dtype=np.int32) if ids is None else ids


def _unread(files: Mapping[str, bytes], loaded: Mapping[int, Ids], kept: set[int], shape: Shape) -> list[str]:
    """What lies in chunks that had to be kept and was not read as it lies there."""
    there = {
        sequence: decode(data[: shape.chunk_ids * ID_BYTES], shape.vocabulary)
        for name, data in files.items()
        if (sequence := chunk_sequence(name)) in kept and sequence is not None
    }
    differ = equal_ids(there, loaded)
    return [f"{differ} words were read otherwise than they lie on the disk"] if differ else []


def _over_budget(disk: SimulatedDisk, shape: Shape) -> list[str]:
    held = sum(len(node.content) for name, node in disk.nodes.items() if chunk_sequence(name) is not None)
    chunks = sum(1 for name in disk.nodes if chunk_sequence(name) is not None)
    if held > shape.budget_bytes or chunks > shape.chunks:
        return [f"{chunks} chunks of {held} bytes are left, the budget is {shape.budget_bytes}"]
    return []
