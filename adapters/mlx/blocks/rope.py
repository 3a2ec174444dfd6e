"""Rotary positions: cosines and sines made once a pass in float64 on the host, rounded once, shared by all layers."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np

from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.domain.families.ops import Rope
from tensorfold.domain.families.rope import inverse_frequencies

A = TypeVar("A")


class RopeBlock(Generic[A]):
    """Turns heads [R, H, D] by their rows' absolute positions."""

    def __init__(self, ops: RowOps[A], plan: Rope) -> None:
        self._ops, self._plan = ops, plan
        self._frequencies = inverse_frequencies(plan)

    def __call__(self, heads: A, context: RowContext[A]) -> A:
        """Turned heads, same shape."""
        found = context.turns.get(self._plan)
        if found is None:
            found = context.turns[self._plan] = self._turns(context)
        cos, sin = found
        return self._ops.turn(heads, cos, sin, self._plan.interleaved)

    def _turns(self, context: RowContext[A]) -> tuple[A, A]:
        angles = context.positions[:, None, None] * self._frequencies
        factor = self._plan.attention_factor
        cos, sin = (factor * np.cos(angles)).astype(np.float32), (factor * np.sin(angles)).astype(np.float32)
        return self._ops.float32(cos), self._ops.float32(sin)
