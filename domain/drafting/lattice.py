"""A tree of drafts out of a block drafter's lattice: best first, with the noise that the target itself will draw with.

Pure arithmetic over candidates. Nothing here is trusted with a token: a poor tree costs rows, never bits. The same
lattice, position and settings give the same tree, and a smaller budget gives a prefix of it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.drafting.sources import Proposal
from tensorfold.domain.sampling import Sampling, noise

Floats = NDArray[np.float64]
_NEVER = -1e30
"""A score that no candidate with a chance has; finite, so that differences of two stay numbers."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """Candidates of the positions behind the pending token, depth after depth.

    `ids[d]` are the k distinct target ids that depth d (from 0) may hold and `scores[d]` [k] their logits there; k may
    differ by depth. `pair[d]` [k of the depth before, k] is added to a candidate's logit when it follows a candidate
    of the depth before; `pair[0]` is [1, k], from the pending token. No score is scaled by a temperature and none
    holds noise.
    """

    ids: tuple[NDArray[np.int64], ...]
    scores: tuple[Floats, ...]
    pair: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Constants of the search: weights of pair scores and of the target's noise, and how much too sure a drafter is.

    The published calibration of trees over the 27B's drafter. `branches` children of a row are tried; a candidate that
    the request's own top-k, nucleus or min-p would leave out, if the drafter were right, loses `outside` nats.
    """

    pair: float = 0.6
    noise: float = 0.7
    spread: float = 1.5
    branches: int = 4
    outside: float = 1.0


PUBLISHED = SearchSettings()


def search(
    lattice: Lattice, position: int, sampling: Sampling, budget: int, source: str, settings: SearchSettings = PUBLISHED
) -> Proposal | None:
    """At most `budget` drafts behind the pending token, which stands at `position`; None where there are none.

    Rows come best chance first, so parents stand before their children and a row's likelier children before its others;
    of equal ones the row that was reached first, then the lower id. With one branch the result is a chain. Raises
    ValueError for a lattice whose parts do not fit each other.
    """
    last = _checked(lattice) - 1
    depths: dict[int, _Depth] = {}
    tokens: list[int] = []
    parents: list[int] = []
    chances: list[float] = []
    # What may follow a row is queued one by one, each behind the likelier one before it: (-value, row above, place).
    heap: list[tuple[float, int, int]] = []
    offers: list[_Offer | None] = []
    value, depth, candidate = 0.0, -1, 0
    while len(tokens) < budget:
        offer = None
        if depth < last:
            below = depths.get(depth + 1)
            if below is None:
                below = depths[depth + 1] = _Depth(lattice, depth + 1, position, sampling, settings)
            offer = below.best(candidate, value)
            if offer.places:
                heappush(heap, (-offer.value(0), len(tokens), 0))
        offers.append(offer)
        if not heap:
            break
        negative, row, place = heap[0]
        chosen = offers[row]
        assert chosen is not None
        if place + 1 < len(chosen.places):
            heapreplace(heap, (-chosen.value(place + 1), row, place + 1))
        else:
            heappop(heap)
        value, depth, candidate = -negative, chosen.depth, chosen.places[place]
        tokens.append(depths[depth].ids[candidate])
        parents.append(row)
        chances.append(math.exp(value))
    if not tokens:
        return None
    is_chain = parents == list(range(len(parents)))
    return Proposal(source, tuple(tokens), tuple(chances), None if is_chain else tuple(parents))


def _checked(lattice: Lattice) -> int:
    """How many depths there are; one without candidates ends the lattice. Raises ValueError for parts that misfit."""
    above = 1
    for depth, (ids, scores, pair) in enumerate(zip(lattice.ids, lattice.scores, lattice.pair, strict=True)):
        if ids.ndim != 1 or scores.shape != ids.shape or pair.shape != (above, len(ids)):
            raise ValueError(
                f"depth {depth} of a lattice has ids {ids.shape}, scores {scores.shape} and pairs {pair.shape} behind "
                f"{above} candidates"
            )
        above = len(ids)
        if above == 0:
            return depth
    return len(lattice.ids)


@dataclass(slots=True)
class _Offer:
    """What may follow a row of log chance `above`: `places` of the candidates of `depth`, likeliest first.

    `shares` are logarithms of their parts of `total`, itself one.
    """

    depth: int
    above: float
    total: float
    shares: list[float]
    places: list[int]

    def value(self, place: int) -> float:
        """The log chance of the way down to a candidate."""
        return self.above + (self.shares[place] - self.total)


class _Depth:
    """The candidates of one depth, in the order of their ids; what depends on the row above is computed when asked.

    The target's draw is the largest of logit + temperature * noise, and the noise is known. What is not known is how
    far the drafter's logits are off, which no temperature below 1 makes smaller: none scales the spread down. A row is
    a few numbers, for which plain floats take a third of the time that arrays take. `ids` are as the lattice has them.
    """

    def __init__(
        self, lattice: Lattice, depth: int, position: int, sampling: Sampling, settings: SearchSettings
    ) -> None:
        self.ids: list[int] = lattice.ids[depth].tolist()
        if len(set(self.ids)) < len(self.ids):
            raise ValueError(f"depth {depth} of a lattice holds an id twice")
        self._depth = depth
        self._order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
        scores = _finite_few(lattice.scores[depth].tolist())
        self._scores = [scores[at] for at in self._order]
        self._pair = lattice.pair[depth]
        self._sampling, self._settings, self._spread = sampling, settings, settings.spread
        self._luck: list[float] | None = None
        self._temperature = 1.0
        if not sampling.greedy:
            self._temperature = min(max(sampling.temperature, 1e-6), 1e6)
            self._spread *= max(self._temperature, 1.0)
            luck = noise(sampling.seed, position + 1 + depth, lattice.ids[depth][self._order])
            self._luck = (luck * (self._temperature * settings.noise)).tolist()

    def best(self, above: int, value: float) -> _Offer:
        """The likeliest candidates behind candidate `above` of log chance `value`, the lower id first of equals."""
        pair, weight, order = _finite_few(self._pair[above].tolist()), self._settings.pair, self._order
        plain = [score + weight * pair[at] for score, at in zip(self._scores, order, strict=True)]
        logits = plain if self._luck is None else self._with_luck(plain, self._luck)
        spread, top = self._spread, max(logits)
        shares = [(logit - top) / spread for logit in logits]
        total = math.log(sum(map(math.exp, shares)))
        first = sorted(range(len(shares)), key=shares.__getitem__, reverse=True)[: self._settings.branches]
        if min(plain) <= _NEVER / 2:
            first = [at for at in first if plain[at] > _NEVER / 2]
        return _Offer(self._depth, value, total, [shares[at] for at in first], [order[at] for at in first])

    def _with_luck(self, plain: list[float], luck: list[float]) -> list[float]:
        least = cut_off(plain, self._temperature, self._sampling)
        fine = self._settings.outside * self._spread
        return [logit + each - fine if logit < least else logit + each for logit, each in zip(plain, luck, strict=True)]


def finite(values: Floats) -> Floats:
    """Without what is not finite: NaN and -inf never, +inf as high as may be."""
    if np.abs(values).max(initial=0.0) <= -_NEVER:  # not so where one is no number
        return values
    return np.clip(np.nan_to_num(values, nan=_NEVER), _NEVER, -_NEVER)


def _finite_few(values: list[float]) -> list[float]:
    """`finite` of a few numbers: a sum that is small enough holds none too large, and none that is no number."""
    if sum(map(abs, values)) <= -_NEVER:
        return values
    return [min(max(_NEVER if each != each else each, _NEVER), -_NEVER) for each in values]


def cut_off(logits: Sequence[float], temperature: float, sampling: Sampling) -> float:
    """The logit below which top-k, the nucleus or min-p would leave out, were the drafter's logits the target's."""
    cut = -math.inf
    some, nucleus = 0 < sampling.top_k < len(logits), sampling.top_p < 1.0
    falling = sorted(logits, reverse=True) if some or nucleus else []
    if some:
        cut = falling[sampling.top_k - 1]
    if sampling.min_p > 0.0:
        cut = max(cut, max(logits) + temperature * math.log(sampling.min_p))
    if nucleus:
        top = falling[0]
        reached = list(accumulate([math.exp((logit - top) / temperature) for logit in falling]))
        kept = bisect_left(reached, sampling.top_p * reached[-1])
        cut = max(cut, falling[min(kept, len(falling) - 1)])
    return cut
