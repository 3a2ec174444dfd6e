"""Rows times a weight matrix on a CPU, through numpy's BLAS in calls of fixed sizes.

The matrix stays in float32 and is read once per call, so sixteen rows cost little more than one. Which call sizes keep
a row's bits is measured when the matrix is built (`row_steps`); nothing is chosen by time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.cpu.row_steps import SIZES, exact_steps, padded, row_calls

Rows = NDArray[np.float32]


class RowProduct:
    """Rows [R, K] times `weight` transposed, in float32.

    `weight` is contiguous float32 [N, K]; `steps` are the row counts of a call, as `product_steps` measured them.
    """

    def __init__(self, weight: Rows, steps: tuple[int, ...]) -> None:
        self.weight = weight
        self.steps = steps

    def __call__(self, rows: Rows) -> Rows:
        """The products of `rows` [R, K], contiguous float32 [R, N]."""
        parts = [
            multiplied(self.weight, padded(rows[a:b], size))[: b - a] for a, b, size in row_calls(len(rows), self.steps)
        ]
        return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts)


def multiplied(weight: Rows, rows: Rows) -> Rows:
    """rows @ weight.T as one BLAS call; a view, transposed in memory."""
    # The weight as the left operand: the BLAS then walks its rows once, which is a quarter faster for few rows.
    return np.matmul(weight, rows.T).T


def product_steps(weight: Rows) -> tuple[int, ...]:
    """Call sizes that keep rows apart for matrices of this shape; empty when the library has none."""
    samples = np.random.default_rng(weight.shape[0]).standard_normal((max(SIZES), weight.shape[1])).astype(np.float32)
    return exact_steps(lambda rows: multiplied(weight, rows), samples)
