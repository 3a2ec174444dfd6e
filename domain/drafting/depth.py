"""How many drafts a head should make for one stream: the depth with the most expected tokens per millisecond.

Learns from counts and times alone; knows no model and reads no clock. It never asks for more than it is allowed, and
for at least one draft wherever drafting is not known to lose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isfinite
from operator import mul

from tensorfold.domain.drafting.costs import CostCurve


@dataclass(frozen=True, slots=True)
class DepthSettings:
    """Constants of the policy.

    `prior` holds the first acceptances by depth, the last of them standing for every deeper one. `acceptance_rate` and
    `cost_rate` weigh a new observation. Every `probe_every`th round drafts one deeper. With `plain_guard`, a drafted
    depth must beat plain rounds by `margin`; while it does not, one draft is tried after `first_wait` plain rounds, a
    wait that doubles up to `longest_wait`.
    """

    prior: tuple[float, ...] = (0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50)
    acceptance_rate: float = 0.15
    cost_rate: float = 0.2
    probe_every: int = 8
    plain_guard: bool = False
    margin: float = 1.05
    first_wait: int = 8
    longest_wait: int = 128


class DepthPolicy:
    """One stream's draft depth. `choose` before the head drafts, `observe` after the round."""

    def __init__(
        self,
        cap: int,
        *,
        curve: CostCurve | None = None,
        head_ms: Sequence[float] = (),
        settings: DepthSettings | None = None,
    ) -> None:
        """`cap` >= 0 is the most drafts it may ask for; `head_ms[d - 1]` the milliseconds in which the head makes d.

        Past its end the head's time grows by its last time per draft. Without `curve` only rounds timed by `observe`
        give costs; where a cost is unknown, acceptance alone decides.
        """
        self._settings = settings or DepthSettings()
        self._cap = cap
        self._curve = curve
        self._head_ms = tuple(head_ms)
        prior = self._settings.prior
        self._acceptance = [prior[min(depth, len(prior) - 1)] for depth in range(self._cap)]
        self._timed: dict[int, float] = {}
        self._rounds = 0
        self._plain_rounds = 0
        self._wait = self._settings.first_wait
        self._bests: dict[int, int] = {}
        self._reckoned_at = 0

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Estimated probability of each depth to be kept when the depths before it were."""
        return tuple(self._acceptance)

    def chances(self, depth: int) -> tuple[float, ...]:
        """Unconditional chances of drafts 1 .. `depth`, as a Proposal wants them; at most the cap."""
        return tuple(accumulate(self._acceptance[: min(depth, self._cap)], mul))

    def choose(self, most: int) -> int:
        """Drafts for the next round, 0 .. min(`most`, cap). Asking twice gives the same answer."""
        most = min(most, self._cap)
        if most <= 0:
            return 0
        best = self._best(most)
        if best == 0:
            return 1 if self._plain_rounds >= self._wait else 0
        every = self._settings.probe_every
        return min(best + 1, most) if self._rounds % every == every - 1 else best

    def is_try(self, most: int) -> bool:
        """Whether plain rounds win, and `choose` gives one draft only to see what became of it.

        What the stream then takes tells as much as a verified row would, and a plain round costs less.
        """
        return self._settings.plain_guard and self._best(min(most, self._cap)) == 0

    def observe(self, drafted: int, kept: int, ms: float | None = None) -> None:
        """A round verified `drafted` of the head's drafts, kept `kept`, and took `ms` (None: not a time to learn from).

        Only depths that were decided are updated. The time of the stream's first round is not used: it holds what is
        set up once.
        """
        settings = self._settings
        plain_was_best = settings.plain_guard and self._best(self._cap) == 0
        for depth in range(min(drafted, kept + 1, self._cap)):
            self._acceptance[depth] += settings.acceptance_rate * ((depth < kept) - self._acceptance[depth])
        if self._rounds and ms is not None and isfinite(ms) and ms > 0.0:
            present = self._timed.get(drafted, ms)
            self._timed[drafted] = present + settings.cost_rate * (ms - present)
        self._rounds += 1
        self._bests.clear()
        if drafted == 0:
            self._plain_rounds += 1
            return
        self._plain_rounds = 0
        failed_probe = plain_was_best and self._best(self._cap) == 0
        self._wait = min(2 * self._wait, settings.longest_wait) if failed_probe else settings.first_wait

    def _best(self, most: int) -> int:
        """The depth of 1 .. `most` with the highest rate, the smaller of equal ones; 0 where plain rounds win.

        Asked several times a round, so it is reckoned once for what was learned and measured so far.
        """
        changes = 0 if self._curve is None else self._curve.changes
        if changes != self._reckoned_at:
            self._bests.clear()
            self._reckoned_at = changes
        best = self._bests.get(most)
        if best is None:
            best = self._bests[most] = self._found(most)
        return best

    def _found(self, most: int) -> int:
        plain, *costs = self._costs(most)
        best, best_rate, expected = 0, 0.0, 1.0
        for depth, (chance, cost) in enumerate(zip(self.chances(most), costs, strict=True), start=1):
            if cost is None:
                return self._by_acceptance(most)
            expected += chance
            if expected > best_rate * cost:
                best, best_rate = depth, expected / cost
        if self._settings.plain_guard and plain is not None and best_rate * plain <= self._settings.margin:
            return 0
        return best

    def _costs(self, most: int) -> list[float | None]:
        """Milliseconds of rounds with 0 .. `most` drafts: as timed, else from the load's measurements, else unknown."""
        if self._curve is None:
            return [self._timed.get(depth) for depth in range(most + 1)]
        rows = self._curve.span(1, most + 1)
        return [self._timed.get(depth) or ms + self._head_cost(depth) for depth, ms in enumerate(rows)]

    def _head_cost(self, depth: int) -> float:
        known = len(self._head_ms)
        if depth == 0 or known == 0:
            return 0.0
        return self._head_ms[depth - 1] if depth <= known else self._head_ms[-1] * depth / known

    def _by_acceptance(self, most: int) -> int:
        first = self._acceptance[0]
        return min(most, 1 if first < 0.8 else 2 if first < 0.9 else 3)
