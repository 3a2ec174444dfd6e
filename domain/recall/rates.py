"""How copies from the record land, by the length of the match behind them: the chances that a next copy is given.

Knows lengths and counts, no ids and no streams. A class whose copies keep missing is given no chance at all, until one
that was offered all the same lands again.
"""

from __future__ import annotations

from tensorfold.domain.drafting.landing import LandingCurve, MatchClass
from tensorfold.domain.recall.layout import KEY_IDS

RESUMED_IDS = 3
"""Ids that must match where a copy is resumed after an edit."""
RESUMED_LENGTHS = range(RESUMED_IDS, RESUMED_IDS + KEY_IDS)
"""Lengths of a resumed copy; behind as many fresh ids as a key holds it is a copy like others."""

CLASSES = (MatchClass(KEY_IDS, 0.70, 0.90), MatchClass(32, 0.82, 0.94), MatchClass(64, 0.92, 0.97))
"""Copies by the length of their match."""
RESUMED = MatchClass(RESUMED_IDS, 0.75, 0.92)
"""Copies resumed after an edit."""
NAMES = ("16-31", "32-63", "64+", "resumed")
"""What the classes are called in reports. Their numbers, which a class is known by, are their places here."""


def match_class(length: int, resumed: bool = False) -> int:
    """The number of the class of a match of `length` ids, or of a copy resumed after an edit."""
    return 3 if resumed else 2 if length >= CLASSES[2].least else 1 if length >= CLASSES[1].least else 0


class LandingRates:
    """Landing of all streams' copies by class and depth.

    `misses` copies of a class in a row that landed nothing close it: the curve alone never says that, because its prior
    keeps some weight for ever, and a stream without drafts of its own would go on paying for copies that never land.
    """

    def __init__(self, misses: int) -> None:
        self._misses = misses
        # Where a fifth of the copies lands a prior that stayed would promise a third: a hostile record lives on that.
        self._curves = [LandingCurve([kind], priors_stay=False) for kind in (*CLASSES, RESUMED)]
        self._priors = [LandingCurve([kind]) for kind in (*CLASSES, RESUMED)]
        self._missed = [0] * len(NAMES)

    def chances(self, kind: int, count: int, behind: int = 0) -> tuple[float, ...]:
        """Unconditional chances of drafts 1 .. `count` of a copy of class `kind`; all 0 while the class is closed.

        `behind` ids of the copy have landed before them.
        """
        if self._missed[kind] >= self._misses:
            return (0.0,) * count
        return self._curves[kind].chances(KEY_IDS, count, behind)

    def prior(self, kind: int, count: int, behind: int = 0) -> tuple[float, ...]:
        """What `chances` were before anything landed or missed."""
        return self._priors[kind].chances(KEY_IDS, count, behind)

    def observe(self, kind: int, landed: int, missed: bool, behind: int = 0) -> None:
        """Of a copy of class `kind` the next `landed` ids were right, and when `missed` the one after was wrong."""
        self._curves[kind].observe(KEY_IDS, landed, missed, behind)
        if landed:
            self._missed[kind] = 0
        elif missed:
            self._missed[kind] += 1
