"""A snapshot file byte by byte: a safetensors file whose tensors are a prompt's ids, its chunks' starts, the buffers of
a lane's state, and last a checksum of every byte before it.

Nothing in it names code. A reader takes the header's figures for claims: they are held against the file's own size and
against what the model's state spec says of so many tokens, before a buffer is made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np

from tensorfold.application.ports.stores import SnapshotKind
from tensorfold.application.ports.target_model import LaneImage
from tensorfold.domain.recall.layout import Ids

FORMAT = "tensorfold-prefix 1"
IDS, STARTS, CHECKSUM = "prefix.ids", "prefix.starts", "prefix.checksum"
CHECKSUM_BYTES = 32
LENGTH_BYTES = 8
MOST_HEADER = 4 << 20
MOST_IDS = 1 << 24
_KINDS = ("system", "conversation")
_ITEMS = {"U8": 1, "I32": 4}
Accepts = Callable[[int, Sequence[tuple[str, int]]], bool]
"""Whether buffers of these names and sizes may be a lane's state behind so many tokens."""


@dataclass(frozen=True, slots=True)
class SnapshotIdentity:
    """Whose a snapshot is: `model` is a digest of the weights, `whole` everything that shapes a state, in words."""

    model: str
    whole: str


@dataclass(frozen=True, slots=True)
class SnapshotHeader:
    """What a header claims. `buffers` are names and sizes in the file's order; `data` is where the first byte lies."""

    identity: SnapshotIdentity
    engine: str
    kind: SnapshotKind
    ids: int
    starts: int
    buffers: tuple[tuple[str, int], ...]
    data: int

    @property
    def size(self) -> int:
        """Bytes of a whole file."""
        return self.data + 4 * (self.ids + self.starts) + sum(size for _, size in self.buffers) + CHECKSUM_BYTES


def parts(
    identity: SnapshotIdentity, kind: SnapshotKind, ids: Ids, starts: Sequence[int], image: LaneImage
) -> Iterator[bytes]:
    """A file's bytes but for its checksum, piece by piece."""
    known = ids.astype("<i4").tobytes()
    begins = np.array(starts, "<i4").tobytes()
    named = [(IDS, "I32", known), (STARTS, "I32", begins), *((name, "U8", data) for name, data in image.buffers)]
    sizes = [(name, dtype, len(data)) for name, dtype, data in named]
    header = _header(identity, image.identity, kind, sizes)
    yield len(header).to_bytes(LENGTH_BYTES, "little")
    yield header
    for _, _, data in named:
        yield data


def _header(
    identity: SnapshotIdentity, engine: str, kind: SnapshotKind, sizes: Sequence[tuple[str, str, int]]
) -> bytes:
    about = {
        "format": FORMAT, "model": identity.model, "identity": identity.whole, "engine": engine, "kind": kind,
    }  # fmt: skip
    table: dict[str, Any] = {"__metadata__": about}
    at = 0
    for name, dtype, size in (*sizes, (CHECKSUM, "U8", CHECKSUM_BYTES)):
        table[name] = {"dtype": dtype, "shape": [size // _ITEMS[dtype]], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(table, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)


class MalformedError(Exception):
    """A file that is no snapshot."""


def parse(data: bytes) -> SnapshotHeader:
    """The header in a file's first bytes, length included. Raises MalformedError."""
    try:
        table = json.loads(data[LENGTH_BYTES:], object_pairs_hook=_distinct)
        about = _texts(table.pop("__metadata__"))
        entries = [_entry(name, value) for name, value in table.items()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedError(f"the header cannot be read: {type(error).__name__}") from None
    if about.get("format") != FORMAT or about.get("kind") not in _KINDS:
        raise MalformedError("the header is of another format")
    names = [name for name, _, _, _ in entries]
    if len(entries) < 3 or names[:2] != [IDS, STARTS] or names[-1] != CHECKSUM:
        raise MalformedError("the header lacks ids, starts or checksum")
    if any(a[3] != b[2] for a, b in pairwise(entries)) or entries[0][2] != 0:
        raise MalformedError("buffers do not follow one another")
    sizes = [stop - start for _, _, start, stop in entries]
    if [dtype for _, dtype, _, _ in entries] != ["I32", "I32", *["U8"] * (len(entries) - 2)]:
        raise MalformedError("a buffer has another type")
    if sizes[-1] != CHECKSUM_BYTES or not 0 < sizes[0] <= 4 * MOST_IDS or not 0 < sizes[1] <= sizes[0]:
        raise MalformedError("the ids, the starts or the checksum have another size")
    return SnapshotHeader(
        SnapshotIdentity(about["model"], about["identity"]),
        about["engine"],
        cast(SnapshotKind, about["kind"]),
        sizes[0] // 4,
        sizes[1] // 4,
        tuple(zip(names[2:-1], sizes[2:-1], strict=True)),
        len(data),
    )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _texts(about: Any) -> dict[str, str]:
    if not isinstance(about, dict) or not {"format", "model", "identity", "engine", "kind"} <= about.keys():
        raise ValueError("the metadata lacks a field")
    if not all(isinstance(value, str) for value in about.values()):
        raise ValueError("the metadata holds something else than texts")
    return about


def _entry(name: str, value: Any) -> tuple[str, str, int, int]:
    """Name, type, and where it begins and ends; its shape must say the same."""
    start, stop = value["data_offsets"]
    (items,) = value["shape"]
    dtype = value["dtype"]
    figures = (start, stop, items)
    if not all(type(figure) is int for figure in figures) or not 0 <= start <= stop:
        raise ValueError("a figure is no size")
    if _ITEMS[dtype] * items != stop - start:
        raise ValueError("a shape is not of its bytes")
    return name, dtype, start, stop


def is_plan(starts: Sequence[int], ids: int) -> bool:
    """Whether chunks may begin there behind so many ids."""
    return bool(starts) and starts[0] == 0 and starts[-1] < ids and all(a < b for a, b in pairwise(starts))
