"""Rows times the matrices they name, as experts are: each matrix once, for all the rows that name it.

A row's bits stay those it has alone: every matrix multiplies in the call sizes that `product` measured for its shape,
and the rows of one matrix are as independent there as those of one window.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.cpu.product import RowProduct
from tensorfold.kernels.cpu.workers import Workers

Rows = NDArray[np.float32]


class GroupedProduct:
    """Rows [R, 1 or k, K] times the transposed matrices that `ids` [R, k] name: [R, k, N].

    `weights` is contiguous float32 [E, N, K], seen and not copied where `product` can cut N into equal blocks. `steps`
    are as for `RowProduct`.
    """

    def __init__(self, weights: Rows, workers: Workers, steps: tuple[int, ...] | None = None) -> None:
        self._outputs = weights.shape[1]
        first = RowProduct(weights[0], workers, steps)
        self.steps = first.steps
        self._products = [first, *(RowProduct(weight, workers, self.steps) for weight in weights[1:])]

    def __call__(self, rows: Rows, ids: NDArray[np.int64]) -> Rows:
        """The products, contiguous float32."""
        count, slots = ids.shape
        flat, named = rows.reshape(-1, rows.shape[-1]), ids.ravel()
        order = np.argsort(named, kind="stable")
        ends = np.flatnonzero(np.diff(named[order], append=-1)) + 1
        made = np.empty((count * slots, self._outputs), np.float32)
        start = 0
        for end in ends.tolist():
            pairs = order[start:end]
            read = pairs if rows.shape[1] == slots else pairs // slots
            made[pairs] = self._products[int(named[pairs[0]])](flat[read])
            start = end
        return made.reshape(count, slots, -1)
