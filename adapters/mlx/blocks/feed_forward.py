"""The MLP without a gate: up, activation, down."""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.gates import activated
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.domain.families.ops import FeedForward

A = TypeVar("A")


class FeedForwardBlock(Generic[A]):
    """down(act(up(x)))."""

    def __init__(self, assembly: Assembly[A], plan: FeedForward, path: str) -> None:
        self._ops, self._plan = assembly.ops, plan
        self._up = LinearBlock(assembly, (f"{path}.up",))
        self._down = LinearBlock(assembly, (f"{path}.down",))

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The MLP's output for every row."""
        return self._down(activated(self._ops, self._up(rows), self._plan.activation))
