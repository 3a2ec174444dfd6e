"""Grouped-query attention in float64, one query at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def attend(queries: Floats, keys: Floats, values: Floats, reads: Sequence[Sequence[int]], scale: float) -> Floats:
    """Softmax attention of `queries` [R, H, D] over `keys` and `values` [T, G, D]; result [R, H, D].

    Query r reads the keys listed in `reads[r]`; query head h reads key head h // (H / G).
    """
    shared = queries.shape[1] // keys.shape[1]
    out = np.zeros(queries.shape, np.float64)
    for r, seen in enumerate(reads):
        for head in range(queries.shape[1]):
            scores = keys[list(seen), head // shared] @ queries[r, head] * scale
            weights = np.exp(scores - scores.max())
            out[r, head] = weights @ values[list(seen), head // shared] / weights.sum()
    return out
