"""Grouped-query attention in float64, one query at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import sigmoid, soft_cap, softmax

Floats = NDArray[np.float64]


def attend(
    queries: Floats,
    keys: Floats,
    values: Floats,
    reads: Sequence[Sequence[int]],
    scale: float,
    softcap: float = 0.0,
) -> Floats:
    """Softmax attention of `queries` [R, H, D] over `keys` [T, G, D] and `values` [T, G, E]; result [R, H, E].

    Query r reads the keys listed in `reads[r]`; query head h reads key head h // (H / G). Scores above `softcap` are
    bent towards it.
    """
    shared = queries.shape[1] // keys.shape[1]
    out = np.zeros((*queries.shape[:2], values.shape[2]), np.float64)
    for r, seen in enumerate(reads):
        for head in range(queries.shape[1]):
            scores = soft_cap(keys[list(seen), head // shared] @ queries[r, head] * scale, softcap)
            out[r, head] = softmax(scores) @ values[list(seen), head // shared]
    return out


def in_window(path: Sequence[int], positions: Sequence[int], window: int) -> list[int]:
    """The rows of `path` that its last row reads: those less than `window` positions back; all when `window` is 0."""
    newest = positions[path[-1]]
    return [row for row in path if not window or positions[row] > newest - window]


def split_output_gate(projected: Floats) -> tuple[Floats, Floats]:
    """Queries and gate [R, H, D] of a doubled projection [R, H, 2 D]: in each head first the query, then the gate."""
    half = projected.shape[-1] // 2
    return projected[..., :half], projected[..., half:]


def output_gated(mixed: Floats, gate: Floats) -> Floats:
    """The attention's result times sigmoid(gate), element by element."""
    return mixed * sigmoid(gate)
