"""Which places of a slot match the end of a stream, and how far back.

Knows ids in chunks and a list of tokens. Places are compared together, first over few ids and only those that agree
there over more, so that a search stays short whatever the text. No match leaves its chunk or crosses a separator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from struct import error, pack

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.recall.chains import Place
from tensorfold.domain.recall.layout import HELD_IDS, ID_BYTES, KEY_IDS, SEPARATOR, Ids

REACH = 1024
"""Ids that a match is measured over; longer ones count as this long."""
# A text that is in many pieces is mostly shorter than one that is held only once. A byte holds numbers up to this one.
_FIRST = HELD_IDS
_COUNTED = np.arange(1, _FIRST + 1, dtype=np.uint8)
# Most of a chain is skipped once so many were measured; a few more than a stream asks for.
_BEFORE = 16
_STARTS = np.arange(0, REACH, _FIRST)
_PADDING = np.full(REACH, SEPARATOR, dtype=np.int32).tobytes()
_NOTHING = SEPARATOR - 1
"""Stands for a token that no chunk holds."""
_LARGEST = np.iinfo(np.int32).max
# A comparison of two texts begins small, as most differ soon, and grows.
_STEP, _GROWTH = 64, 4

Match = tuple[int, Place]
"""How many ids before a place equal the last ones of a stream, and the place."""
_LENGTH = itemgetter(0)


def matches(tokens: Sequence[int], walk: Iterable[list[Place]], most: int) -> list[Match]:
    """The best `most` (1 or more) places of a walk that match KEY_IDS or more of the last `tokens`, an id behind each.

    Longest first, of equal ones the first of the walk, which is left where so many were found. `tokens` are KEY_IDS or
    more and may be anything; what no chunk holds matches nothing.
    """
    best: list[Match] = []
    for places in walk:
        for part in (places[:_BEFORE], places[_BEFORE:]):
            # To be better than what there is, a place must match one id more than the last of these.
            back = best[most - 1][0] if len(best) >= most else 0
            if back == REACH or back == len(tokens):
                break
            token = tokens[-1 - back]
            hopeful = [(chunk, stop) for chunk, stop in part if stop > back and chunk.id_at[stop - 1 - back] == token]
            # The sort keeps the order of equal ones.
            best = sorted(best + _measured(tokens, hopeful), key=_LENGTH, reverse=True)[:most]
        if len(best) >= most:
            break
    return best


def common_start(left: Ids, right: Ids) -> int:
    """How many ids are the same from the start of both."""
    most = min(len(left), len(right))
    done, step = 0, _STEP
    while done < most:
        stop = min(done + step, most)
        differs = left[done:stop] != right[done:stop]
        first = int(differs.argmax())
        if differs[first]:
            return done + first
        done, step = stop, _GROWTH * step
    return most


def _measured(tokens: Sequence[int], places: Sequence[Place]) -> list[Match]:
    """Those of the places that match and that an id follows."""
    if not places:
        return []
    ends, follows = _compared(_tail(tokens, _FIRST), places)
    good = [i for i, end in enumerate(ends) if end >= KEY_IDS and follows[i] != SEPARATOR]
    longer = [i for i in good if ends[i] == _FIRST]
    if longer:
        again, _ = _compared(_tail(tokens, REACH), [places[i] for i in longer])
        for number, i in enumerate(longer):
            ends[i] = again[number]
    return [(ends[i], places[i]) for i in good]


def _tail(tokens: Sequence[int], width: int) -> Ids:
    """The last `width` tokens; _NOTHING for separators, and before the first."""
    last = tokens[-width:]
    before = [_NOTHING] * (width - len(last))
    try:
        packed = pack(f"{width}i", *before, *last)
    except error:
        packed = pack(f"{width}i", *before, *(min(max(token, _NOTHING), _LARGEST) for token in last))
    ids = np.frombuffer(packed, dtype=np.int32)
    parted = ids == SEPARATOR
    return np.where(parted, np.int32(_NOTHING), ids) if parted.any() else ids


def _compared(tail: Ids, places: Sequence[Place]) -> tuple[list[int], list[int]]:
    """For each place how many ids before it equal the end of `tail`, and what follows it."""
    width = len(tail)
    if min([stop for _, stop in places]) < width:
        joined = b"".join([_padded(place, width) for place in places])
    else:
        joined = b"".join([chunk.id_at[stop - width : stop + 1] for chunk, stop in places])
    block = np.frombuffer(joined, dtype=np.int32).reshape(len(places), width + 1)
    return _equal_ends(block[:, :-1] != tail), block[:, -1].tolist()


def _padded(place: Place, width: int) -> bytes:
    """The `width` ids before a place and the one after, with separators for those that would lie before the chunk."""
    chunk, stop = place
    return _PADDING[: ID_BYTES * max(width - stop, 0)] + bytes(chunk.id_at[max(stop - width, 0) : stop + 1])


def _equal_ends(differs: NDArray[np.bool_]) -> list[int]:
    """How many False end each row, whose length is a multiple of _FIRST."""
    rows, width = differs.shape
    parts = width // _FIRST
    # Counted from 1, the last place that differs of each part of a row, 0 where none does; bytes are compared fastest.
    last = (differs.view(np.uint8).reshape(rows, parts, _FIRST) * _COUNTED).max(axis=2)
    if parts > 1:
        last = np.where(last > 0, last + _STARTS, 0)
    found: list[int] = (width - last.max(axis=1)).tolist()
    return found
