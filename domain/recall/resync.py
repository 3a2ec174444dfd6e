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


def resumed(places: Places, broke: int, tokens: Sequence[int]) -> Place | None:
    """Where a copy that broke at `broke`, the id that was not followed, goes on; None where the last ids are not found.

    The last RESUMED_IDS of `tokens` must stand in the record within BEFORE .. BEHIND ids of the break, an id must
    follow them, and the nearest such place is taken: of two equally near ones the one behind the break.
    """
    last = tuple(tokens[-RESUMED_IDS:])
    start = max(broke - BEFORE, 0)
    ids = places.following(start, broke - start + BEHIND + RESUMED_IDS + 1)
    if len(last) < RESUMED_IDS:
        return None
    for offset in _NEAREST:
        at = broke + offset - start
        behind = at + RESUMED_IDS
        if at >= 0 and behind < len(ids) and ids[at:behind] == last:
            return Place(RESUMED_IDS, start + behind)
    return None
