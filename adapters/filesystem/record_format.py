"""A chunk file byte by byte, and its name.

A chunk file is little-endian 32-bit integers and nothing else: an id is stored as id + 1, and 0 ends a piece. Where a
write was lost a disk leaves zeros. They must never read as an id that nobody wrote, and so they read as ends of pieces:
a hole cuts a text in two, a tail of zeros adds nothing. Every other value outside 1..vocabulary reads as 0 does.
"""

from __future__ import annotations

import re

import numpy as np

from tensorfold.domain.recall.layout import ID_BYTES, SEPARATOR, Ids

IDENTITY = "identity"
LOCK = "lock"
MOST_SEQUENCE = 99_999_999
"""The last number that a chunk's name has room for."""

_BEGINNING = 1_577_836_800
_LAST_FIRST = 90_000_000
_NAME = re.compile(r"([0-9]{8})\.ids")


def chunk_name(sequence: int) -> str:
    """The name of chunk `sequence`."""
    return f"{sequence:08d}.ids"


def sequence_of(name: str) -> int | None:
    """The number in a chunk's name; None for every other name."""
    form = _NAME.fullmatch(name)
    return None if form is None else int(form[1])


def first_sequence(wall: float) -> int:
    """The number of the first chunk of a folder that has none, at the Unix time `wall`: tens of seconds since 2020.

    So a folder that an earlier server emptied does not see a number twice. Until 2048; from then on it is a constant.
    """
    return min(max(1, int(wall - _BEGINNING) // 10), _LAST_FIRST)


def encode(values: Ids, vocabulary: int) -> bytes:
    """The bytes of ids and separators; what is no id is written as a separator."""
    ids = (values >= 0) & (values < vocabulary)
    return np.where(ids, values + 1, 0).astype("<i4").tobytes()


def decode(data: bytes, vocabulary: int) -> Ids:
    """The ids and separators in a file's bytes; bytes behind the last whole value are ignored."""
    stored = np.frombuffer(data, dtype="<u4", count=len(data) // ID_BYTES)
    # 0 wraps round to the largest value, so one comparison finds all that is no id.
    values = (stored - np.uint32(1)).astype(np.uint32, copy=False)
    ids: Ids = values.view(np.int32)
    ids[values >= np.uint32(vocabulary)] = SEPARATOR
    return ids
