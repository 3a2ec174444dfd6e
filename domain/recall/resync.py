"""A copy resumed after an edit: where a copy broke, the stream's last ids are looked for close by.

Knows the record's ids around one break and a stream's last ids. The fewer ids match, the closer they must stand, and
a resumed copy is a class of its own; the longer match that every new copy needs stands as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.recall.places import Places
from tensorfold.domain.recall.rates import RESUMED_IDS

ALONE_IDS = 16
"""Ids on either side of a break among which a match that must stand alone does so."""


class Evidence(NamedTuple):
    """`ids` that match and begin from `before` ids before the break to `behind` ids behind it.

    `alone`: and no others near the break do, else it is chance which of them is right.
    """

    ids: int
    before: int
    behind: int
    alone: bool


EVIDENCE = (
    Evidence(6, 128, 512, False),
    Evidence(4, 16, 64, True),
    Evidence(3, 4, 16, False),
    Evidence(2, 4, 16, True),
    Evidence(1, 2, 8, True),
)
"""What lets a broken copy go on, the best first."""
BEFORE, BEHIND = EVIDENCE[0].before, EVIDENCE[0].behind
MOST_IDS = EVIDENCE[0].ids


@dataclass(frozen=True, slots=True, eq=False)
class Break:
    """Where a copy broke: `ids` of the record from place `start` on, of which the one at index `at` was not followed.

    The stream held `tokens` ids then.
    """

    start: int
    ids: NDArray[np.int64]
    at: int
    tokens: int

    def until(self, stop: int) -> tuple[int, ...]:
        """The ids of the record from the one not followed up to index `stop`."""
        return tuple(self.ids[self.at : stop].tolist())


class Resumed(NamedTuple):
    """The stream's last `length` ids stand in the record up to the one at index `behind`, which follows them."""

    length: int
    behind: int


def around(places: Places, broke: int, tokens: int) -> Break:
    """The break at place `broke` of a stream of `tokens` ids, with the record's ids around it.

    What stands before it is left out where the text begins there.
    """
    for before in (BEFORE, ALONE_IDS, 0):
        ids = places.following(broke - before, before + BEHIND + MOST_IDS + 1) if broke >= before else ()
        if len(ids) > before:
            return Break(broke - before, np.array(ids, dtype=np.int64), before, tokens)
    return NOWHERE


NOWHERE = Break(0, np.zeros(0, dtype=np.int64), 0, 0)
"""No break of which anything is known."""


def resumed(broken: Break, tokens: Sequence[int]) -> Resumed | None:
    """Where a broken copy goes on for a stream that now holds `tokens`; None without enough EVIDENCE.

    Matches of fewer than RESUMED_IDS ids must have come since the break, and an id must follow a match. Of several
    places the nearest to the break is taken, of two equally near ones the one behind it. The ids have no part in the
    time it takes.
    """
    fresh = len(tokens) - broken.tokens
    offsets = _offsets(broken, tokens)
    for evidence in EVIDENCE:
        if evidence.ids > len(offsets) or fresh < evidence.ids < RESUMED_IDS:
            continue
        found = offsets[evidence.ids - 1]
        near = [offset for offset in found if -evidence.before <= offset <= evidence.behind]
        if near and not (evidence.alone and _count_near(found, evidence) > 1):
            offset = min(near, key=_distance)
            return Resumed(evidence.ids, broken.at + offset + evidence.ids)
    return None


def _offsets(broken: Break, tokens: Sequence[int]) -> list[list[int]]:
    """For 1, 2, .. ids how far from the break matches of so many last ids begin; ends with the first count of none."""
    stop = len(broken.ids) - 1
    found: list[list[int]] = []
    equal = np.ones(max(stop, 0), dtype=np.bool_)
    for length, token in enumerate(tokens[: -MOST_IDS - 1 : -1], start=1):
        # `equal` is of the ids at which a match ends.
        equal[length - 1 :] &= broken.ids[: max(stop - length + 1, 0)] == token
        equal[: length - 1] = False
        ends = np.flatnonzero(equal)
        if not len(ends):
            break
        found.append((ends - (length - 1) - broken.at).tolist())
    return found


def _count_near(offsets: Sequence[int], evidence: Evidence) -> int:
    before, behind = max(evidence.before, ALONE_IDS), max(evidence.behind, ALONE_IDS)
    return sum(-before <= offset <= behind for offset in offsets)


def _distance(offset: int) -> tuple[int, int]:
    return abs(offset), -offset
