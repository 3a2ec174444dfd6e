"""The choice of keys for a sparse attention in float64: blocks of neighbouring tokens, pooled, scored and kept.

A block's key depends on its own tokens alone; a query chooses among the blocks that are complete where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import softmax

Floats = NDArray[np.float64]


def pool_mean(keys: Floats) -> Floats:
    """Mean [D] of a block's raw keys [ratio, D]."""
    result: Floats = keys.mean(axis=0)
    return result


def pool_gated(keys: Floats, gates: Floats, offsets: Floats) -> Floats:
    """Sum [D] of a block's keys [ratio, D], each channel weighed by a softmax over the block of gates + offsets."""
    result: Floats = (softmax(gates + offsets, axis=0) * keys).sum(axis=0)
    return result


def block_scores(queries: Floats, pooled: Floats, scale: float, head_weights: Floats | None = None) -> Floats:
    """Scores [B] of block keys [B, D] for one query of several heads [H, D].

    sum over heads of relu(query . key), each head times its entry of `head_weights` [H], times `scale`.
    """
    products = np.maximum(pooled @ queries.T, 0.0)
    if head_weights is not None:
        products = products * head_weights
    result: Floats = products.sum(axis=1) * scale
    return result


def best_blocks(scores: Floats, count: int) -> list[int]:
    """The `count` blocks with the highest scores in ascending order of their ids; of equal ones the lower ids."""
    order = np.argsort(-scores, kind="stable")
    return sorted(int(block) for block in order[:count])


def chosen_keys(blocks: Sequence[int], ratio: int, length: int) -> list[int]:
    """Places of the keys that a query with `length` visible tokens reads: its blocks', and the unfinished tail."""
    kept = [block * ratio + place for block in blocks for place in range(ratio)]
    return kept + list(range(length // ratio * ratio, length))
