"""How likely the drafts of a copy are to land, by the length of the match behind it and the depth of the draft.

A calibrated curve: it begins at stated priors and moves with what landed, so that copies, heads and other sources are
weighed on one scale. Knows no tokens and no streams. Chances never rise with depth.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

DECAY = 0.97
"""Weight that older offers of a class keep at each new one: about the last 33 offers count."""
PRIOR_TRIALS = 8.0
"""Drafts that the prior is worth."""
DEPTHS = (1, 2, 5, 17)
"""First depths of the bins that learn together: the first draft, 2-4, 5-16, and all deeper ones."""


@dataclass(frozen=True, slots=True)
class MatchClass:
    """Matches of `least` ids or more (up to the next class), with priors for the first draft and for each later one.

    Both are conditional: the probability that a draft lands when the drafts before it did.
    """

    least: int
    first: float
    later: float


OWN_CONTEXT_CLASSES = (
    MatchClass(2, 0.25, 0.50),
    MatchClass(3, 0.35, 0.60),
    MatchClass(5, 0.50, 0.75),
    MatchClass(8, 0.60, 0.85),
    MatchClass(12, 0.75, 0.90),
    MatchClass(16, 0.85, 0.92),
    MatchClass(24, 0.94, 0.94),
    MatchClass(64, 0.94, 0.97),
)
"""Copies from the stream's own context: 0.94 a draft from 24 matching ids on, less where a match may be chance."""


class LandingCurve:
    """Observed landing by match class and depth bin, decayed per offer and pulled to the class's prior."""

    def __init__(self, classes: Sequence[MatchClass] = OWN_CONTEXT_CLASSES, *, priors_stay: bool = True) -> None:
        """Raises ValueError when `classes` is empty or not in ascending order of `least`.

        Without `priors_stay` a prior gives way once PRIOR_TRIALS drafts were seen: it weighs less the more were.
        """
        self._leasts = [c.least for c in classes]
        if not classes or self._leasts != sorted(set(self._leasts)):
            raise ValueError(f"match classes begin at {self._leasts}, which is not an ascending list of lengths")
        self._classes = tuple(classes)
        self._priors_stay = priors_stay
        self._tried = [[0.0] * len(DEPTHS) for _ in classes]
        self._kept = [[0.0] * len(DEPTHS) for _ in classes]
        self._curves: list[dict[int, tuple[float, ...]]] = [{} for _ in self._classes]

    def chances(self, length: int, count: int, behind: int = 0) -> tuple[float, ...]:
        """Unconditional chances of drafts 1 .. `count` behind a match of `length` ids; each lies in 0 .. 1.

        `behind` ids of the same copy have landed before them: a copy's depth goes on from window to window.
        """
        kind, behind = self._kind(length), min(behind, DEPTHS[-1] - 1)
        curve = self._curves[kind].get(behind, ())
        if len(curve) < count:
            steps = [self._chance(kind, depth) for depth in range(len(DEPTHS))]
            depths = (steps[bisect_right(DEPTHS, behind + depth) - 1] for depth in range(1, count + 1))
            curve = self._curves[kind][behind] = tuple(accumulate(depths, mul))
        return curve[:count]

    def observe(self, length: int, landed: int, missed: bool, behind: int = 0) -> None:
        """A copy behind a match of `length` ids: `landed` ids were right and, when `missed`, the next was wrong.

        Ids that no draw of the target decided are in neither figure. Nothing decided leaves the curve as it is. Before
        them, `behind` ids of the copy had landed.
        """
        if landed <= 0 and not missed:
            return
        kind, start = self._kind(length), behind + 1
        tried, kept = self._tried[kind], self._kept[kind]
        right = start + landed
        for depth, first in enumerate(DEPTHS):
            following = DEPTHS[depth + 1] if depth + 1 < len(DEPTHS) else right + missed
            tried[depth] = DECAY * tried[depth] + max(0, min(right + missed, following) - max(first, start))
            kept[depth] = DECAY * kept[depth] + max(0, min(right, following) - max(first, start))
        self._curves[kind].clear()

    def _kind(self, length: int) -> int:
        """The class of a match; one shorter than every class counts as the first."""
        return max(bisect_right(self._leasts, length) - 1, 0)

    def _chance(self, kind: int, depth: int) -> float:
        prior = self._classes[kind].later if depth else self._classes[kind].first
        tried, weight = self._tried[kind][depth], PRIOR_TRIALS
        if tried > PRIOR_TRIALS and not self._priors_stay:
            weight *= PRIOR_TRIALS / tried
        return (self._kept[kind][depth] + weight * prior) / (tried + weight)
