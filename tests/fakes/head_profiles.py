"""How often a planted head is right, by depth and rank, and the scores that make a lattice say so.

Pure arithmetic; a profile is stated by whoever plants it and is no property of any head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.drafting.lattice import PUBLISHED, cut_off
from tensorfold.domain.sampling import Sampling, keyed_hash, noise

_SETTLING = 4
"""Raising what was left out moves the cut; few steps settle it, and a rank that is still off costs no token."""


@dataclass(frozen=True, slots=True)
class Profile:
    """`ranks[d][r]`: the chance that the right id of depth d (from 0) is a head's candidate r, 0 being its best.

    Given that every depth before was right; the last depth stands for all deeper ones. What is left of 1 is the chance
    that the right id is no candidate. Of a chain the best candidates alone count. Prompt, `seed`, position and depth
    decide what is right: the same in every run and whatever the windows.
    """

    ranks: tuple[tuple[float, ...], ...]
    seed: int = 1

    def __post_init__(self) -> None:
        for chances in self.ranks or ((),):
            total = sum(chances)
            if not chances or min(chances) < 0.0 or total > 1.0 + 1e-9:
                raise ValueError(f"chances {chances} of a depth must be of 0 to 1 and 1 together at most")

    def at(self, depth: int) -> tuple[float, ...]:
        """Chances by rank at a depth from 0."""
        return self.ranks[min(depth, len(self.ranks) - 1)]

    def rank(self, key: int, depth: int, position: int) -> int | None:
        """The rank of the right id of `position` at a depth from 0; None where it is no candidate.

        `key` is the stream's: `derive_seed` of its prompt with the profile's seed as salt.
        """
        return self.ranks_from(key, position, depth + 1)[depth]

    def ranks_from(self, key: int, position: int, depths: int) -> tuple[int | None, ...]:
        """The same for every depth below `depths`."""
        lots = keyed_hash(key, position, np.arange(depths, dtype=np.int64)).tolist()
        return tuple(self._ranked(int(lot) / 2**64, depth) for depth, lot in enumerate(lots))

    def _ranked(self, left: float, depth: int) -> int | None:
        for rank, chance in enumerate(self.at(depth)):
            if left < chance:
                return rank
            left -= chance
        return None


def scores_for(
    chances: Sequence[float], ids: NDArray[np.int64], position: int, sampling: Sampling
) -> NDArray[np.float64]:
    """Logits [k] under which the search of a lattice gives candidate r the chance `chances[r]`.

    What is left of 1 is spread over the other candidates, each below the ranked ones. The search adds the target's
    noise and lowers what the request would leave out; both are taken out beforehand, the second as far as it can be.
    """
    least = min(chances) if len(chances) < len(ids) else 0.0
    rest = max(1.0 - sum(chances), 0.0) / max(len(ids) - len(chances), 1)
    each = [*chances[: len(ids)], *[min(rest, 0.999 * least)] * (len(ids) - len(chances))]
    spread, wanted = PUBLISHED.spread, np.log(np.maximum(each, 1e-9))
    if sampling.greedy:
        return wanted * spread
    temperature = min(max(sampling.temperature, 1e-6), 1e6)
    spread *= max(temperature, 1.0)
    luck = temperature * PUBLISHED.noise * noise(sampling.seed, position, ids)
    plain = wanted * spread - luck
    logits = plain
    for _ in range(_SETTLING):
        outside = logits < cut_off(logits.tolist(), temperature, sampling)
        logits = plain + outside * (PUBLISHED.outside * spread)
    return logits
