"""From the chances that a head gives its drafts to those with which they land, learned from what landed.

Counts only; knows no head and no stream. The map never falls, so the order of drafts stays as the head gave it, and
where nothing was seen it is the identity.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from tensorfold.domain.drafting.costs import levelled

EDGES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
"""Upper edges of the bins of given chances that learn together; the last bin goes to 1."""
DECAY = 0.998
"""Weight that older drafts of a bin keep at each new one: about the last 500 drafts count."""
PRIOR_TRIALS = 12.0
"""Drafts that the given chance is worth."""


class Calibration:
    """Landed drafts against given chances, by bin of the given chance."""

    def __init__(self) -> None:
        bins = len(EDGES) + 1
        self._tried = [0.0] * bins
        self._given = [0.0] * bins
        self._landed = [0.0] * bins
        self._knots: tuple[list[float], list[float]] | None = None

    def observe(self, chances: Sequence[float], landed: Sequence[bool]) -> None:
        """Drafts that were given `chances`, each decided: whether it is part of the reply."""
        for chance, came in zip(chances, landed, strict=True):
            at = bisect_left(EDGES, chance)
            self._tried[at] = DECAY * self._tried[at] + 1.0
            self._given[at] = DECAY * self._given[at] + chance
            self._landed[at] = DECAY * self._landed[at] + came
        if chances:
            self._knots = None

    def chances(self, given: Sequence[float]) -> tuple[float, ...]:
        """Calibrated chances, each in 0 .. 1; where one given chance is no higher than another, so is its result."""
        self.prepare()
        assert self._knots is not None
        xs, ys = self._knots
        last = len(xs) - 1
        calibrated = []
        for chance in given:
            right = min(bisect_left(xs, chance, 1), last)
            x0, y0 = xs[right - 1], ys[right - 1]
            calibrated.append(min(max(y0 + (ys[right] - y0) * (chance - x0) / (xs[right] - x0), 0.0), 1.0))
        return tuple(calibrated)

    def prepare(self) -> None:
        """Draw the map from what was observed, if that has changed: `chances` are then read off at once."""
        if self._knots is None:
            self._knots = self._made()

    def _made(self) -> tuple[list[float], list[float]]:
        """Points of the map: each bin's mean given chance with its share of landed drafts, between (0, 0) and (1, top).

        A bin's share is pulled to what was given; shares that would fall are levelled, each by what it rests on.
        """
        xs, ys, weights, low = [0.0], [0.0], [1e9], 0.0
        for at, high in enumerate((*EDGES, 1.0)):
            middle, tried = (low + high) / 2, self._tried[at] + PRIOR_TRIALS
            xs.append((self._given[at] + PRIOR_TRIALS * middle) / tried)
            ys.append((self._landed[at] + PRIOR_TRIALS * middle) / tried)
            weights.append(tried)
            low = high
        ys = levelled(ys, weights)
        top = min(1.0, ys[-1] + (1.0 - xs[-1]))
        return [*xs, 1.0 + 1e-9], [*ys, top]
