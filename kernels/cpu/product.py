"""Rows times a weight matrix on a CPU, in many small BLAS products of fixed sizes.

The matrix is seen as blocks of outputs, each small enough that the BLAS neither repacks it nor starts threads of its
own, so every weight is read from memory once for up to 64 rows. Which row counts keep a row's bits is measured when
the matrix is built (`row_steps`); nothing that decides bits is chosen by time or by the number of threads.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.cpu.row_steps import SIZES, exact_steps, padded, row_calls
from tensorfold.kernels.cpu.workers import Workers

Rows = NDArray[np.float32]
_SMALL = 1 << 18
"""Multiplications in one product up to which OpenBLAS stays in the calling thread."""
_MOST_OUTPUTS = 64
_REUSED = 1 << 18
"""Weights passed over for all rows before the next ones: 1 MiB, which a core's cache holds."""
_ALONE = 1 << 20
"""Multiplications below which handing pieces to other threads costs more than it saves."""


class RowProduct:
    """Rows [R, K] times `weight` transposed, in float32.

    `weight` is contiguous float32 [N, K]. `steps` are the row counts of a call, by default as measured for this shape.
    """

    def __init__(self, weight: Rows, workers: Workers, steps: tuple[int, ...] | None = None) -> None:
        self.outputs, self.inputs = weight.shape
        self._workers = workers
        self._blocks = in_blocks(weight)
        self._stride = max(1, _REUSED // (self._blocks.shape[1] * self.inputs))
        self.steps = self._measured() if steps is None else steps

    def __call__(self, rows: Rows) -> Rows:
        """The products of `rows` [R, K], contiguous float32 [R, N]."""
        calls = row_calls(len(rows), self.steps)
        tiles = [padded(rows[start:stop], size).T for start, stop, size in calls]
        count, width, _ = self._blocks.shape
        made = [np.empty((count, width, tile.shape[1]), np.float32) for tile in tiles]

        def multiply(start: int, stop: int) -> None:
            for at in range(start, stop, self._stride):
                end = min(at + self._stride, stop)
                for tile, part in zip(tiles, made, strict=True):
                    np.matmul(self._blocks[at:end], tile, out=part[at:end])

        if sum(tile.shape[1] for tile in tiles) * self.outputs * self.inputs < _ALONE:
            multiply(0, count)
        else:
            self._workers.share(count, multiply)
        out = np.empty((len(rows), self.outputs), np.float32)
        for (start, stop, size), part in zip(calls, made, strict=True):
            out[start:stop] = part.reshape(-1, size)[: self.outputs, : stop - start].T
        return out

    def _measured(self) -> tuple[int, ...]:
        samples = np.random.default_rng(self.outputs).standard_normal((max(SIZES), self.inputs)).astype(np.float32)

        def call(rows: Rows) -> Rows:
            made: Rows = np.matmul(self._blocks, rows.T)
            return np.ascontiguousarray(made.reshape(-1, len(rows)).T)

        return exact_steps(call, samples)


def in_blocks(weight: Rows) -> Rows:
    """`weight` [N, K] as blocks [B, n, K]: a view, or a copy with zero rows behind where n does not divide N."""
    outputs, inputs = weight.shape
    size = block_outputs(inputs)
    rest = -outputs % size
    if rest:
        weight = np.concatenate([weight, np.zeros((rest, inputs), np.float32)])
    return weight.reshape(-1, size, inputs)


def block_outputs(inputs: int) -> int:
    """Outputs of a block: the largest power of two from 2 to 64 with which a call of 16 rows stays small."""
    size = _MOST_OUTPUTS
    while size > 2 and max(SIZES) * size * inputs > _SMALL:
        size //= 2
    return size
