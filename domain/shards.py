"""The sampler rule over a vocabulary that is split in parts: each part sends candidates, the union is drawn.

Integer weights make the split invisible: the nucleus of the union, cut by the sum of the parts' totals, is the nucleus
of the whole row. Where the parts sent too little to be sure, there is no draw, and they send more. Knows no ranks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.sampling import Sampling, above_min_p, best, draw, energies, weight_needed, weights, winner


@dataclass(frozen=True, slots=True)
class ShardCandidates:
    """The best candidates of one part of a row: `logits` and `ids` [n], in the order of the draw.

    `total` is the integer weight of the whole part, 0 where no nucleus is cut by it. `complete`: nothing that was left
    out can be drawn.
    """

    logits: NDArray[np.float32]
    ids: NDArray[np.int64]
    total: int
    complete: bool


def shard_candidates(
    logits: NDArray[np.float32], ids: NDArray[np.int64], position: int, sampling: Sampling, top: float, most: int
) -> ShardCandidates:
    """What a part with `logits` [v] of `ids` [v] sends for the token at `position`.

    Its `top_k` best; without a top-k its `most` best where a nucleus is cut, else the one token it would draw itself.
    `top` is the highest logit of all parts, NaN aside.
    """
    energy, _ = energies(logits, sampling.temperature)
    _, least = energies(np.array([top], dtype=np.float32), sampling.temperature)
    cuts_nucleus = _cuts_nucleus(sampling, least)
    if sampling.top_k > 0 or cuts_nucleus:
        count = min(sampling.top_k if sampling.top_k > 0 else most, len(energy))
        kept = best(energy, ids, count)
        kept = kept[np.lexsort((ids[kept], energy[kept]))]
        total = int(weights(energy, least).sum()) if cuts_nucleus else 0
        return ShardCandidates(logits[kept], ids[kept], total, complete=count == len(energy))
    if sampling.greedy or math.isinf(least):
        kept = np.flatnonzero(ids == draw(logits, position, sampling, ids))
    else:
        kept = above_min_p(energy, least, sampling.min_p) if sampling.min_p > 0.0 else np.arange(len(energy))
        if len(kept):
            kept = kept[[winner(energy[kept], ids[kept], position, sampling.seed)]]
    return ShardCandidates(logits[kept], ids[kept], 0, complete=True)


def draw_shards(shards: Sequence[ShardCandidates], position: int, sampling: Sampling) -> int | None:
    """The draw of the whole row from what its parts sent; None when the nucleus may reach past what some part sent."""
    logits = np.concatenate([s.logits for s in shards])
    ids = np.concatenate([s.ids for s in shards])
    energy, least = energies(logits, sampling.temperature)
    if not _cuts_nucleus(sampling, least):
        return draw(logits, position, sampling, ids)
    order = np.lexsort((ids, energy))
    needed = weight_needed(sampling.top_p, sum(s.total for s in shards))
    place = int(np.cumsum(weights(energy[order], least)).searchsorted(needed))
    kept = order[: place + 1]
    known = min((_last(s, sampling) for s in shards if not s.complete), default=None)
    if known is not None and (place == len(order) or (float(energy[kept[-1]]), int(ids[kept[-1]])) > known):
        return None
    return draw(logits[kept], position, replace(sampling, top_p=1.0), ids[kept])


def _cuts_nucleus(sampling: Sampling, least: float) -> bool:
    """Whether a nucleus is cut among all candidates; behind a top-k it is cut in the union of what was sent."""
    tempered = sampling.top_k <= 0 and not sampling.greedy and not math.isinf(least)
    return tempered and 0.0 < sampling.top_p < 1.0


def _last(shard: ShardCandidates, sampling: Sampling) -> tuple[float, int]:
    """Where in the order of candidates the part's knowledge ends."""
    _, energy = energies(shard.logits[-1:], sampling.temperature)
    return energy, int(shard.ids[-1])
