"""Rows to logits, for the rows that are drawn and no others."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.weights import Matrix
from tensorfold.domain.families.plans import Head

A = TypeVar("A")


class HeadBlock(Generic[A]):
    """A product over the vocabulary, capped on the host where the plan says so."""

    def __init__(self, ops: RowOps[A], plan: Head, matrix: Matrix) -> None:
        self._ops, self._softcap = ops, plan.softcap
        self._product = ops.product([matrix])

    def __call__(self, rows: A) -> A:
        """Uncapped logits on the device; `host` finishes them."""
        return self._product(rows)

    def host(self, logits: A) -> NDArray[np.float32]:
        """Logits [R, V] in float32, writable."""
        made = self._ops.host(logits)
        if self._softcap:
            cap = np.float32(self._softcap)
            made = cap * np.tanh(made / cap)
        return made
