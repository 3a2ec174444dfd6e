"""Projections of all rows of a pass at once, dense or affine, several of one input side by side."""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly

A = TypeVar("A")


class LinearBlock(Generic[A]):
    """Rows [R, K] to [R, sum of outputs] through the matrices at `paths`, which share their input."""

    def __init__(self, assembly: Assembly[A], paths: tuple[str, ...]) -> None:
        matrices = [assembly.weights.matrix(path) for path in paths]
        self._ops = assembly.ops
        self._product = self._ops.product(matrices)
        self.outputs = tuple(matrix.shape[0] for matrix in matrices)

    def __call__(self, rows: A) -> A:
        """Products with the matrices in order, biases added."""
        return self._product(rows)

    def split(self, rows: A) -> list[A]:
        """The same, each matrix's result for itself."""
        made, parts, at = self._product(rows), [], 0
        for outputs in self.outputs:
            parts.append(self._ops.columns(made, at, at + outputs))
            at += outputs
        return parts
