"""RMS norm of rows. Other norms of the plan types are refused when a decoder is built."""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Norm

A = TypeVar("A")


class NormBlock(Generic[A]):
    """Norms the last axis. Raises RefusedError for a LayerNorm or a norm in groups."""

    def __init__(self, ops: RowOps[A], plan: Norm, path: str, weights: WeightReader) -> None:
        if plan.layer or plan.groups != 1:
            raise RefusedError(f"The MLX backend has no norm of this form yet ({path}); update TensorFold.")
        self._ops, self._eps = ops, plan.eps
        values = weights.vector(path) if plan.weight else None
        self._weight = None if values is None else ops.constant(values)

    def __call__(self, rows: A) -> A:
        """Normed rows, same shape."""
        return self._ops.norm(rows, self._weight, self._eps)


def norm_block(ops: RowOps[A], plan: Norm | None, path: str, weights: WeightReader) -> NormBlock[A] | None:
    """The block of a norm that may be absent."""
    return None if plan is None else NormBlock(ops, plan, path, weights)
