"""The one sampler rule: a draw is a function of a row's logits, the settings, a seed and an absolute position.

Float64 noise keyed by (seed, position, token id), an integer nucleus, no state carried anywhere: the same row drawn
twice, alone or in company, gives the same token. Devices may reproduce this rule; tests compare them with it.
Knows no request and no device; what a request may ask for is checked where requests enter.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

RULE = "gumbel-f64/nucleus-i40/1"

Ids = NDArray[np.int64] | NDArray[np.uint64]
Floats = NDArray[np.float64]

_MASK = 2**64 - 1
_FULL_WEIGHT = 2.0**40
_LEAST_TEMPERATURE = 1e-6
# Past this a float32 row is flat to the last bit of its scores, and dividing by more would merge different logits.
_MOST_TEMPERATURE = 1e200
# Below this many candidates, sorting all of them is cheaper than looking for the few that can matter.
_SORT_ALL = 1024


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of one request. `temperature` 0 is greedy; `top_k` <= 0 and `top_p` >= 1 are off; `min_p` 0 is off."""

    seed: int = 0
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    @property
    def greedy(self) -> bool:
        """Whether the draw is the plain argmax."""
        return self.temperature <= 0.0


def derive_seed(ids: Iterable[int], salt: int = 0) -> int:
    """The 63-bit seed of a prompt that names none: equal prompts sample equal replies.

    SHA-256 over the ids in decimal joined by commas, `|` and the salt; its first 8 bytes, little-endian, top bit clear.
    """
    text = ",".join(map(str, ids)) + f"|{salt}"
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest(), "little") & (2**63 - 1)


def noise(seed: int, position: int, ids: Ids) -> Floats:
    """Standard Gumbel noise of each id in `ids` [n] for the token at `position`; float64 [n], every value finite."""
    return gumbel(keyed_hash(seed, position, ids))


def keyed_hash(seed: int, position: int, ids: Ids) -> NDArray[np.uint64]:
    """64 hashed bits for each id: splitmix64 finalisers chained over seed, position and id."""
    mixed = np.bitwise_xor(np.asarray(ids, dtype=np.int64).view(np.uint64), _position_key(seed, position))
    spare = mixed >> _SHIFT_30
    mixed ^= spare
    mixed *= _FACTOR_A
    np.right_shift(mixed, _SHIFT_27, out=spare)
    mixed ^= spare
    mixed *= _FACTOR_B
    np.right_shift(mixed, _SHIFT_31, out=spare)
    mixed ^= spare
    return mixed


def gumbel(hashes: NDArray[np.uint64]) -> Floats:
    """Gumbel values of hashed bits: 53 of them make a uniform inside (0, 1), at most 1 - 2^-53, and g = -ln(-ln u)."""
    uniform = (hashes >> _SHIFT_11).astype(np.float64)
    uniform *= 2.0**-53
    uniform += 2.0**-54
    np.minimum(uniform, 1.0 - 2.0**-53, out=uniform)
    np.log(uniform, out=uniform)
    np.negative(uniform, out=uniform)
    np.log(uniform, out=uniform)
    return np.negative(uniform, out=uniform)


def draw(logits: NDArray[np.float32], position: int, sampling: Sampling, ids: NDArray[np.int64] | None = None) -> int:
    """The token at `position`, from a row's `logits` [V].

    With `ids` [V] the logits are candidates in any order; adding candidates that the settings cannot keep changes no
    draw. NaN counts as -inf; a row of nothing else gives its lowest id.
    """
    if sampling.temperature <= 0.0:
        return _first_maximum(logits, ids)
    energy, least = energies(logits, sampling.temperature)
    return _choose(energy, least, _row_ids(len(logits)) if ids is None else ids, position, sampling)


def draw_rows(logits: NDArray[np.float32], positions: Sequence[int], samplings: Sequence[Sampling]) -> list[int]:
    """`draw` of each row of `logits` [R, V], at its own position and with its own settings."""
    if all(s.temperature <= 0.0 for s in samplings):
        return _first_maxima(logits)
    return [draw(row, p, s) for row, p, s in zip(logits, positions, samplings, strict=True)]


def energies(logits: NDArray[np.float32], temperature: float) -> tuple[Floats, float]:
    """-logit / temperature in float64, NaN as +inf, and the least of them.

    Ascending energy, then ascending id, is the order of candidates: the only rule for ties.
    """
    divisor = -min(_MOST_TEMPERATURE, max(_LEAST_TEMPERATURE, temperature))
    energy: Floats = np.divide(logits, divisor, dtype=np.float64)
    least = float(energy.min())
    if math.isnan(least):
        energy[np.isnan(energy)] = np.inf
        least = float(energy.min())
    return energy, least


def weights(energy: Floats, least: float) -> NDArray[np.int64]:
    """Integer probabilities floor(2^40 * exp(least - energy)): their sums do not depend on the order of adding.

    `energy` must be contiguous, so that every caller's exponentials come from the same loop.
    """
    weight = np.subtract(least, energy)
    np.exp(weight, out=weight)
    weight *= _FULL_WEIGHT
    return weight.astype(np.int64)


def weight_needed(top_p: float, total: int) -> int:
    """ceil(top_p * total), with `top_p` taken as the exact ratio it is."""
    numerator, denominator = top_p.as_integer_ratio()
    return -(-numerator * total // denominator)


def best(energy: Floats, ids: Ids, count: int, last: float | None = None) -> NDArray[np.intp]:
    """Places of the first `count` candidates in the order (energy, id), themselves in no order.

    `last` is the energy of the last of them, where the caller knows it.
    """
    if last is None:
        last = float(np.partition(energy, count - 1)[count - 1])
    kept = np.flatnonzero(energy <= last)
    surplus = len(kept) - count
    if surplus:
        tied = kept[energy[kept] == last]
        dropped = tied[np.argsort(ids[tied])[len(tied) - surplus :]]
        kept = np.setdiff1d(kept, dropped, assume_unique=True)
    return kept


def winner(energy: Floats, ids: Ids, position: int, seed: int) -> int:
    """Place of the candidate with the highest noise less energy; of equals, the first in the order (energy, id)."""
    scores = noise(seed, position, ids)
    scores -= energy
    place = int(scores.argmax())
    if np.count_nonzero(scores == scores[place]) > 1:
        tied = np.flatnonzero(scores == scores[place])
        place = int(tied[np.lexsort((ids[tied], energy[tied]))[0]])
    return place


def above_min_p(energy: Floats, least: float, min_p: float) -> NDArray[np.intp]:
    """Places of the candidates at least `min_p` times as likely as the likeliest one, which always stays."""
    return np.flatnonzero(energy <= least - min(0.0, math.log(min_p)))


def _choose(energy: Floats, least: float, ids: Ids, position: int, sampling: Sampling) -> int:
    """The draw over candidates: top-k, then the nucleus, then min-p, then noise."""
    if math.isinf(least):
        return int(ids[energy == least].min())
    if 0 < sampling.top_k < len(energy):
        kept = best(energy, ids, sampling.top_k)
        energy, ids = energy[kept], ids[kept]
    if 0.0 < sampling.top_p < 1.0:
        kept = best(energy, ids, *_nucleus(energy, least, sampling.top_p))
        energy, ids = energy[kept], ids[kept]
    if sampling.min_p > 0.0:
        kept = above_min_p(energy, least, sampling.min_p)
        energy, ids = energy[kept], ids[kept]
    return int(ids[winner(energy, ids, position, sampling.seed)])


def _nucleus(energy: Floats, least: float, top_p: float) -> tuple[int, float]:
    """How many candidates the nucleus keeps, and the energy of the last."""
    if len(energy) > _SORT_ALL:
        total = int(weights(energy, least).sum())
        needed = weight_needed(top_p, total)
        # All candidates of weight at most `spare` together cannot hold more than the nucleus leaves out, so the cut
        # lies among the others; a weight of 0 never reaches the cut. The likeliest candidate is always among the
        # others: its share of the spare weight is far more than rounding could move.
        spare = max((total - needed) // len(energy), 0.5)
        energy = energy[energy <= least + math.log(_FULL_WEIGHT / spare)]
        energy.sort()
        reached = np.cumsum(weights(energy, least))
    else:
        energy = np.sort(energy)
        reached = np.cumsum(weights(energy, least))
        needed = weight_needed(top_p, int(reached[-1]))
    place = int(reached.searchsorted(needed))
    return place + 1, float(energy[place])


def _first_maximum(logits: NDArray[np.float32], ids: NDArray[np.int64] | None) -> int:
    place = int(logits.argmax())
    top = logits[place]
    if top != top:
        logits = np.where(np.isnan(logits), -np.inf, logits)
        place = int(logits.argmax())
        top = logits[place]
    return place if ids is None else int(ids[logits == top].min())


def _first_maxima(logits: NDArray[np.float32]) -> list[int]:
    places = logits.argmax(axis=1)
    chosen: list[int] = places.tolist()
    for row in np.flatnonzero(np.isnan(logits[np.arange(len(chosen)), places])).tolist():
        chosen[row] = _first_maximum(logits[row], None)
    return chosen


_GOLDEN = 0x9E3779B97F4A7C15
_POSITION_FACTOR = 0xD1B54A32D192ED03
_MIX_A, _MIX_B = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_FACTOR_A, _FACTOR_B = np.uint64(_MIX_A), np.uint64(_MIX_B)
_SHIFT_11, _SHIFT_27, _SHIFT_30, _SHIFT_31 = (np.uint64(bits) for bits in (11, 27, 30, 31))


def _mix(x: int) -> int:
    x = (x ^ x >> 30) * _MIX_A & _MASK
    x = (x ^ x >> 27) * _MIX_B & _MASK
    return x ^ x >> 31


@lru_cache(maxsize=1024)
def _seed_key(seed: int) -> int:
    return _mix(seed + _GOLDEN & _MASK)


@lru_cache(maxsize=4096)
def _position_key(seed: int, position: int) -> np.uint64:
    return np.uint64(_mix(_seed_key(seed) ^ position * _POSITION_FACTOR & _MASK))


@lru_cache(maxsize=16)
def _row_ids(vocabulary: int) -> NDArray[np.int64]:
    ids = np.arange(vocabulary, dtype=np.int64)
    ids.flags.writeable = False  # shared by every row of this width
    return ids
