"""How far the places that match a key go on matching backwards.

Knows ids in chunks and a list of tokens. Places are compared together, first over few ids and only those that agree
there over more, so that a search stays short whatever the text. No match leaves its chunk or crosses a separator.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import error, pack

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.recall.chunks import Chunk
from tensorfold.domain.recall.layout import HELD_IDS, ID_BYTES, SEPARATOR, Ids

REACH = 1024
"""Ids that a match is measured over; longer ones count as this long."""
# A text that is in many pieces is mostly shorter than one that is held only once. Multiples of 8, see `_last_true`.
_WIDTHS = (HELD_IDS, REACH)
_PADDING = np.full(REACH, SEPARATOR, dtype=np.int32).tobytes()
_NOTHING = SEPARATOR - 1
"""Stands for a token that no chunk holds."""


def lengths(tokens: Sequence[int], places: Sequence[tuple[Chunk, int]], vocabulary: int) -> list[int]:
    """For each place (one at least), how many ids before it equal the last ids of `tokens`, at most REACH.

    `tokens` may hold anything; what is not in 0 .. `vocabulary` - 1 matches nothing.
    """
    first, reach = _WIDTHS
    found = _equal_ends(_tail(tokens, first, vocabulary), places)
    longer = [i for i, length in enumerate(found) if length == first]
    if longer:
        again = _equal_ends(_tail(tokens, reach, vocabulary), [places[i] for i in longer])
        for i, length in zip(longer, again, strict=True):
            found[i] = length
    return found


def common_start(left: Ids, right: Ids) -> int:
    """How many ids are the same from the start of both."""
    most = min(len(left), len(right))
    done, step = 0, 64
    while done < most:
        stop = min(done + step, most)
        differs = left[done:stop] != right[done:stop]
        first = int(differs.argmax())
        if differs[first]:
            return done + first
        done, step = stop, 4 * step
    return most


def _tail(tokens: Sequence[int], width: int, vocabulary: int) -> Ids:
    """The last `width` tokens; _NOTHING for what is no id, and before the first."""
    last = tokens[-width:]
    before = [_NOTHING] * (width - len(last))
    try:
        packed = pack(f"{width}i", *before, *last)
    except error:
        packed = pack(f"{width}i", *before, *(token if 0 <= token < vocabulary else _NOTHING for token in last))
    ids = np.frombuffer(packed, dtype=np.int32)
    # As unsigned numbers the negative ones are large too.
    outside = ids.view(np.uint32) >= vocabulary
    return np.where(outside, np.int32(_NOTHING), ids) if outside.any() else ids


def _equal_ends(tail: Ids, places: Sequence[tuple[Chunk, int]]) -> list[int]:
    """How many ids at the end of `tail` stand before each place."""
    width = len(tail)
    rows: list[bytes] | list[memoryview]
    if min([stop for _, stop in places]) < width:
        rows = [_padded(chunk, stop, width) for chunk, stop in places]
    else:
        rows = [chunk.id_at[stop - width : stop] for chunk, stop in places]
    block = np.frombuffer(b"".join(rows), dtype=np.int32).reshape(len(places), width)
    found: list[int] = _last_true(block != tail).tolist()
    return found


def _padded(chunk: Chunk, stop: int, width: int) -> bytes:
    """The `width` ids before `stop`, with separators in place of those that would lie before the chunk."""
    return _PADDING[: ID_BYTES * max(width - stop, 0)] + bytes(chunk.id_at[max(stop - width, 0) : stop])


def _last_true(rows: NDArray[np.bool_]) -> NDArray[np.intp]:
    """How many False end each row, whose length is a multiple of 8: eight at a time, then singly."""
    eights = rows.view(np.uint64)
    after = (eights[:, ::-1] != 0).argmax(axis=1)
    eight = eights[np.arange(len(rows)), -1 - after]
    singles = eight.view(np.bool_).reshape(-1, 8)[:, ::-1].argmax(axis=1)
    # argmax is 0 also where nothing is True.
    found: NDArray[np.intp] = np.where(eight == 0, rows.shape[1], 8 * after + singles)
    return found
