"""Reads of cached rows and scores of blocks through MLX's own operations; a choice of blocks becomes a mask."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.adapters.mlx.reads import Reads

Parts = Sequence[mx.array]


def read_past(queries: mx.array, keys: Parts, values: Parts, reads: Reads[mx.array]) -> mx.array:
    """Results [R, H, D] of `queries` [R, H, D] over `keys` and `values`, parts [G, T, D]; see `RowOps.read`."""
    seen_keys = _joined(keys, reads.stop)
    seen_values = seen_keys if values is keys else _joined(values, reads.stop)
    made = mx.fast.scaled_dot_product_attention(
        queries.swapaxes(0, 1)[None], seen_keys[None], seen_values[None], scale=reads.scale, mask=_mask(reads)
    )
    return made[0].swapaxes(0, 1)


def score_blocks(queries: mx.array, keys: Parts, weights: mx.array | None) -> mx.array:
    """Scores [R, B]: over heads the sum of relu(query . key), each times its weight; see `RowOps.block_scores`."""
    rows, heads, dim = queries.shape
    held = _joined(keys, sum(part.shape[1] for part in keys))[0].astype(mx.float32)
    products = mx.maximum(queries.reshape(rows * heads, dim) @ held.T, 0.0).reshape(rows, heads, -1)
    return (products if weights is None else products * weights[:, :, None]).sum(axis=1)


def _joined(parts: Parts, stop: int) -> mx.array:
    whole = parts[0] if len(parts) == 1 else mx.concatenate(list(parts), axis=1)
    return whole[:, :stop]


def _mask(reads: Reads[mx.array]) -> mx.array:
    held = np.arange(reads.stop)[None]
    causal = mx.array(held <= reads.positions[:, None])
    if reads.chosen is None:
        return causal
    tail = mx.array(held >= (reads.complete * reads.ratio)[:, None])
    marked = mx.repeat(reads.chosen, reads.ratio, axis=1)[:, : reads.stop]
    unmarked = mx.zeros((marked.shape[0], reads.stop - marked.shape[1]), mx.bool_)
    return causal & (tail | mx.concatenate([marked, unmarked], axis=1))
