"""Token ids to rows."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.weights import Matrix
from tensorfold.domain.families.plans import Embedding

A = TypeVar("A")


class EmbeddingBlock(Generic[A]):
    """Looks rows up in the table and scales them."""

    def __init__(self, ops: RowOps[A], plan: Embedding, matrix: Matrix) -> None:
        self._ops, self._multiplier = ops, plan.multiplier
        self._look_up = ops.embedding(matrix)

    def __call__(self, ids: NDArray[np.int64]) -> A:
        """Rows [R, width] of ids [R]."""
        rows = self._look_up(ids)
        return rows if self._multiplier == 1.0 else self._ops.scale(rows, self._multiplier)
