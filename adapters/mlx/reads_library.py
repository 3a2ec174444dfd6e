"""Reads of cached rows and scores of blocks through MLX's own operations.

Rows that choose their keys gather them, a bounded number of rows at once, so that each reads as many slots whatever
the cache's length and its neighbours. Which keys those are never comes to the host.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.adapters.mlx.reads import Reads

Parts = Sequence[mx.array]
_AT_ONCE = 16
"""Rows that gather together: each may need megabytes of keys."""


def read_past(queries: mx.array, keys: Parts, values: Parts, reads: Reads[mx.array]) -> mx.array:
    """Results [R, H, D] of `queries` [R, H, D] over `keys` and `values`, parts [G, T, D]; see `RowOps.read`."""
    seen_keys = _joined(keys, reads.stop)
    seen_values = seen_keys if values is keys else _joined(values, reads.stop)
    if reads.chosen is not None:
        return _read_chosen(queries, seen_keys, seen_values, reads, reads.chosen)
    causal = mx.array(np.arange(reads.stop)[None] <= reads.positions[:, None])
    made = mx.fast.scaled_dot_product_attention(
        queries.swapaxes(0, 1)[None], seen_keys[None], seen_values[None], scale=reads.scale, mask=causal
    )
    return made[0].swapaxes(0, 1)


def score_blocks(queries: mx.array, keys: Parts, weights: mx.array | None) -> mx.array:
    """Scores [R, B]: over heads the sum of relu(query . key), each times its weight; see `RowOps.block_scores`."""
    rows, heads, dim = queries.shape
    held = _joined(keys, sum(part.shape[1] for part in keys))[0].astype(mx.float32)
    products = mx.maximum(queries.reshape(rows * heads, dim) @ held.T, 0.0).reshape(rows, heads, -1)
    return (products if weights is None else products * weights[:, :, None]).sum(axis=1)


def _read_chosen(
    queries: mx.array, keys: mx.array, values: mx.array, reads: Reads[mx.array], chosen: mx.array
) -> mx.array:
    slots, seen = _slots(reads, chosen)
    made = []
    for start in range(0, queries.shape[0], _AT_ONCE):
        rows = slice(start, start + _AT_ONCE)
        own_keys = mx.take(keys, slots[rows], axis=1).swapaxes(0, 1)
        own_values = own_keys if values is keys else mx.take(values, slots[rows], axis=1).swapaxes(0, 1)
        read = mx.fast.scaled_dot_product_attention(
            queries[rows][:, :, None], own_keys, own_values, scale=reads.scale, mask=seen[rows][:, None, None]
        )
        made.append(read[:, :, 0])
    return made[0] if len(made) == 1 else mx.concatenate(made, axis=0)


def _slots(reads: Reads[mx.array], chosen: mx.array) -> tuple[mx.array, mx.array]:
    """Positions [R, S] that rows read, ascending, and which of them count: a tail may leave its last slots empty."""
    blocks, count = chosen.shape[1], reads.count
    marked = mx.where(chosen, mx.arange(blocks), blocks)
    first = mx.minimum(mx.sort(marked, axis=-1)[:, :count], blocks - 1) * reads.ratio
    whole = (first[:, :, None] + mx.arange(reads.ratio)).reshape(first.shape[0], -1)
    tail = (reads.complete * reads.ratio)[:, None] + np.arange(reads.ratio - 1)
    counts = np.concatenate(
        [np.ones(whole.shape, np.bool_), tail <= reads.positions[:, None]],
        axis=1,
    )
    held = mx.array(np.minimum(tail, reads.positions[:, None]).astype(np.int32))
    return mx.concatenate([whole.astype(mx.int32), held], axis=1), mx.array(counts)


def _joined(parts: Parts, stop: int) -> mx.array:
    whole = parts[0] if len(parts) == 1 else mx.concatenate(list(parts), axis=1)
    return whole[:, :stop]
