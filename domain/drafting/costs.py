"""What a launch costs by its rows: measured at load, kept current by the rounds that run.

Pure arithmetic over milliseconds; reads no clock. Whatever it is fed, the curve is positive and never falls as rows
grow, so that a policy which walks along it cannot be led into wider rounds by noise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from math import isfinite

RATE = 0.2
"""Weight of a new observation."""
STALL = 4.0
"""An observation counts as at most this many times the present value: a pause of the machine is not a cost of rows."""


class CostCurve:
    """Milliseconds of a launch by rows.

    Between points it is linear; below the narrowest point it is that point's; past the widest it grows by the widest
    point's cost per row. Points that fall as rows grow are levelled: neighbours that disagree take their mean.
    """

    def __init__(self, points: Sequence[tuple[int, float]]) -> None:
        """`points` are (rows, ms) in any order; one that is not a positive finite time of at least one row is ignored.

        Of several for the same rows the last counts. Raises ValueError when no point is left.
        """
        usable = {rows: float(ms) for rows, ms in points if _plausible(rows, ms)}
        if not usable:
            raise ValueError(f"none of {len(points)} cost points is a positive time of at least one row")
        self._rows = sorted(usable)
        self._measured = [usable[rows] for rows in self._rows]
        self._levelled = levelled(self._measured)
        self._stale = False
        self._known: list[float] = []
        self.changes = 0
        """How often the curve has changed: what was reckoned with it holds while this does."""

    @property
    def points(self) -> tuple[tuple[int, float], ...]:
        """The measured points as they stand, before levelling; ascending rows."""
        return tuple(zip(self._rows, self._measured, strict=True))

    def ms(self, rows: int) -> float:
        """Milliseconds of a launch of `rows` rows."""
        return self.span(rows, rows)[0]

    def span(self, first: int, last: int) -> list[float]:
        """Milliseconds of `first`, `first` + 1, .. `last` rows."""
        if self._stale:
            self._levelled, self._stale, self._known = levelled(self._measured), False, []
        if first < 1:
            return self._reckoned(first, last)
        if last > len(self._known):
            self._known += self._reckoned(len(self._known) + 1, last)
        return self._known[first - 1 : last]

    def _reckoned(self, first: int, last: int) -> list[float]:
        xs, ys = self._rows, self._levelled
        costs = [ys[0]] * (min(last, xs[0]) - first + 1)
        right = max(bisect_left(xs, first), 1)
        while right < len(xs) and xs[right - 1] < last:
            x0, x1, y1 = xs[right - 1], xs[right], ys[right]
            slope = (y1 - ys[right - 1]) / (x1 - x0)
            costs += [y1 - slope * (x1 - x) for x in range(max(first, x0 + 1), min(last, x1) + 1)]
            right += 1
        costs += [ys[-1] * x / xs[-1] for x in range(max(first, xs[-1] + 1), last + 1)]
        return costs

    def observe(self, rows: int, ms: float) -> None:
        """A launch of `rows` rows took `ms`. What is not a positive finite time of at least one row is ignored.

        A row count without a point gets one: between points it begins at the line there, past the widest at what was
        seen, since nothing but a guess stood there.
        """
        if not _plausible(rows, ms):
            return
        at = bisect_left(self._rows, rows)
        if at < len(self._rows) and self._rows[at] == rows:
            present = self._measured[at]
        else:
            present = self.ms(rows)
            self._rows.insert(at, rows)
            self._measured.insert(at, present)
            if at == len(self._rows) - 1:
                present = min(ms, present)
        self._measured[at] = present + RATE * (min(ms, STALL * present) - present)
        self._stale = True
        self.changes += 1


def _plausible(rows: int, ms: float) -> bool:
    return rows >= 1 and isfinite(ms) and ms > 0.0


def levelled(values: Sequence[float], weights: Sequence[float] | None = None) -> list[float]:
    """The nearest never-falling values (least squares): neighbours that would fall take their mean, weighted."""
    pools: list[tuple[float, float, int]] = []
    for at, value in enumerate(values):
        weight = 1.0 if weights is None else weights[at]
        total, count = value * weight, 1
        while pools and pools[-1][0] * weight > total * pools[-1][1]:
            before, heavy, width = pools.pop()
            total, weight, count = total + before, weight + heavy, count + width
        pools.append((total, weight, count))
    return [total / weight for total, weight, count in pools for _ in range(count)]
