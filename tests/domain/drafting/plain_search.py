"""The search of a lattice and a drafter's sureness as they were first written: arrays, one candidate after another.

What the product's forms must give bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import count

import numpy as np

from tensorfold.domain.drafting.lattice import PUBLISHED, Floats, Lattice, SearchSettings, cut_off, finite
from tensorfold.domain.drafting.sources import Proposal
from tensorfold.domain.drafting.sureness import DECAY, SPREADS
from tensorfold.domain.sampling import Sampling, noise

_NEVER = -1e30


def plain_search(
    lattice: Lattice, position: int, sampling: Sampling, budget: int, source: str, settings: SearchSettings = PUBLISHED
) -> Proposal | None:
    """`search`, but for what it refuses."""
    last = _depths(lattice) - 1
    depths: dict[int, _Depth] = {}
    tokens: list[int] = []
    parents: list[int] = []
    chances: list[float] = []
    # (-value, order of arrival, row above, depth, candidate)
    heap: list[tuple[float, int, int, int, int]] = []
    arrivals = count()
    value, depth, candidate = 0.0, -1, 0
    while len(tokens) < budget:
        if depth < last:
            below = depths.get(depth + 1)
            if below is None:
                below = depths[depth + 1] = _Depth(lattice, depth + 1, position, sampling, settings)
            for score, child in zip(*below.best(candidate), strict=True):
                heappush(heap, (-(value + score), next(arrivals), len(tokens), depth + 1, child))
        if not heap:
            break
        negative, _, row, depth, candidate = heappop(heap)
        value = -negative
        tokens.append(int(lattice.ids[depth][candidate]))
        parents.append(row)
        chances.append(math.exp(value))
    if not tokens:
        return None
    is_chain = all(parent == row for row, parent in enumerate(parents))
    return Proposal(source, tuple(tokens), tuple(chances), None if is_chain else tuple(parents))


def _depths(lattice: Lattice) -> int:
    return next((depth for depth, ids in enumerate(lattice.ids) if not len(ids)), len(lattice.ids))


class _Depth:
    """The candidates of one depth, in the order of their ids."""

    def __init__(
        self, lattice: Lattice, depth: int, position: int, sampling: Sampling, settings: SearchSettings
    ) -> None:
        order = lattice.ids[depth].argsort(kind="stable")
        ids = lattice.ids[depth][order]
        if (ids[1:] == ids[:-1]).any():
            raise ValueError(f"depth {depth} of a lattice holds an id twice")
        self._order: list[int] = order.tolist()
        self._scores: list[float] = finite(lattice.scores[depth][order]).tolist()
        self._pair: list[list[float]] = (settings.pair * finite(lattice.pair[depth][:, order])).tolist()
        self._sampling, self._settings, self._spread = sampling, settings, settings.spread
        self._luck: list[float] | None = None
        self._temperature = 1.0
        if not sampling.greedy:
            self._temperature = min(max(sampling.temperature, 1e-6), 1e6)
            self._spread *= max(self._temperature, 1.0)
            luck = noise(sampling.seed, position + 1 + depth, ids)
            self._luck = (luck * (self._temperature * settings.noise)).tolist()

    def best(self, above: int) -> tuple[list[float], list[int]]:
        """Log chances and places of the likeliest candidates behind candidate `above`, the lower id first of equals."""
        plain = [score + pair for score, pair in zip(self._scores, self._pair[above], strict=True)]
        logits = plain if self._luck is None else self._with_luck(plain, self._luck)
        spread, top = self._spread, max(logits)
        energy = [(top - logit) / spread for logit in logits]
        total = math.log(sum([math.exp(-each) for each in energy]))
        order = sorted(range(len(energy)), key=energy.__getitem__)[: self._settings.branches]
        if min(plain) <= _NEVER / 2:
            order = [at for at in order if plain[at] > _NEVER / 2]
        return [-energy[at] - total for at in order], [self._order[at] for at in order]

    def _with_luck(self, plain: list[float], luck: list[float]) -> list[float]:
        least = cut_off(plain, self._temperature, self._sampling)
        fine = self._settings.outside * self._spread
        return [logit + each - fine if logit < least else logit + each for logit, each in zip(plain, luck, strict=True)]


def plain_nats(lattice: Lattice, position: int, sampling: Sampling, tokens: Sequence[int]) -> Floats:
    """What `Sureness` holds of each of SPREADS behind its first tokens."""
    spreads, weights = np.array(SPREADS).T
    nats = np.zeros(len(SPREADS))
    temperature = 0.0 if sampling.greedy else min(max(sampling.temperature, 1e-6), 1e6)
    spread = spreads * max(temperature, 1.0)
    above = 0
    for depth, token in enumerate(tokens[: len(lattice.ids)]):
        ids = lattice.ids[depth]
        (places,) = np.nonzero(ids == token)
        if len(places) != 1:
            break
        logits = finite(lattice.scores[depth] + PUBLISHED.pair * lattice.pair[depth][above])
        if temperature:
            luck = temperature * noise(sampling.seed, position + 1 + depth, ids)
            logits = logits + weights[:, None] * luck
        above = int(places[0])
        scaled = (logits - logits[..., above, None]) / spread[:, None]
        top = scaled.max(axis=1, keepdims=True)
        nats = DECAY * nats - (top[:, 0] + np.log(np.exp(scaled - top).sum(axis=1)))
    return nats
