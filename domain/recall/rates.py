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

_RESUMED, _SHORT, _MIDDLE, _LONG = range(4)
CLASSES = (
    MatchClass(RESUMED_IDS, 0.75, 0.92),
    MatchClass(KEY_IDS, 0.70, 0.90),
    MatchClass(32, 0.82, 0.94),
    MatchClass(64, 0.92, 0.97),
)
"""Ascending lengths, as a landing curve wants them: a resumed copy is counted at the length it was resumed with."""
NAMES = {_SHORT: "16-31", _MIDDLE: "32-63", _LONG: "64+", _RESUMED: "resumed"}
"""What the classes are called in reports, in the order reported."""


def match_class(length: int, resumed: bool = False) -> int:
    """The class (an index of CLASSES) of a match of `length` ids, or of a copy resumed after an edit."""
    if resumed:
        return _RESUMED
    return _LONG if length >= 64 else _MIDDLE if length >= 32 else _SHORT


class LandingRates:
    """Landing of all streams' copies by class and depth.

    `misses` copies of a class in a row that landed nothing close it: the curve alone never says that, because its prior
    keeps some weight for ever, and a stream without drafts of its own would go on paying for copies that never land.
    """

    def __init__(self, misses: int) -> None:
        self._misses = misses
        self._curve = LandingCurve(CLASSES)
        self._prior = LandingCurve(CLASSES)
        self._missed = [0] * len(CLASSES)

    def chances(self, kind: int, count: int) -> tuple[float, ...]:
        """Unconditional chances of drafts 1 .. `count` of a copy of class `kind`; all 0 while the class is closed."""
        if self._missed[kind] >= self._misses:
            return (0.0,) * count
        return self._curve.chances(CLASSES[kind].least, count)

    def prior(self, kind: int, count: int) -> tuple[float, ...]:
        """What `chances` were before anything landed or missed."""
        return self._prior.chances(CLASSES[kind].least, count)

    def observe(self, kind: int, landed: int, missed: bool) -> None:
        """Of a copy of class `kind` the first `landed` ids were right, and when `missed` the next was wrong."""
        self._curve.observe(CLASSES[kind].least, landed, missed)
        if landed:
            self._missed[kind] = 0
        elif missed:
            self._missed[kind] += 1
