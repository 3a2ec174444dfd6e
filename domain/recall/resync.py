"""A copy resumed after an edit: where a copy broke, the stream's last ids are looked for close by.

Knows one place of the record and a stream's last ids. Three ids prove little, so a resumed copy is a class of its own;
the longer match that every new copy needs stands as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.domain.recall.places import Place, Places
from tensorfold.domain.recall.rates import RESUMED_IDS

BEFORE = 4
"""Ids before the place of a break at which the last ids may begin."""
BEHIND = 16
"""And ids behind it: as many may have been left out or replaced."""
_NEAREST = sorted(range(-BEFORE, BEHIND + 1), key=lambda offset: (abs(offset), -offset))
_REACH = BEFORE + BEHIND + RESUMED_IDS + 1


def resumed(places: Places, broke: int, tokens: Sequence[int]) -> Place | None:
    """Where a copy that broke at `broke`, the id that was not followed, goes on; None where the last ids are not found.

    The last RESUMED_IDS of `tokens` must stand in the record, from BEFORE ids before the break to BEHIND ids behind it,
    and an id must follow them. The nearest such place is taken, of two equally near ones the one behind the break.
    """
    start = broke - BEFORE
    if start < 0:
        return None
    last = tuple(tokens[-RESUMED_IDS:])
    ids = places.following(start, _REACH)
    for offset in _NEAREST:
        at = BEFORE + offset
        behind = at + RESUMED_IDS
        if behind < len(ids) and ids[at:behind] == last:
            return Place(RESUMED_IDS, start + behind)
    return None
