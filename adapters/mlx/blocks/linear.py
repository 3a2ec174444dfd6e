"""Projections of all rows of a pass at once, dense or affine, several of one input side by side."""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.weights import WeightReader

A = TypeVar("A")


class LinearBlock(Generic[A]):
    """Rows [R, K] to [R, sum of outputs] through the matrices at `paths`, which share their input."""

    def __init__(self, ops: RowOps[A], paths: tuple[str, ...], weights: WeightReader) -> None:
        matrices = [weights.matrix(path) for path in paths]
        self._product = ops.product(matrices)
        self.outputs = tuple(matrix.shape[0] for matrix in matrices)

    def __call__(self, rows: A) -> A:
        """Products with the matrices in order, biases added."""
        return self._product(rows)
