"""The gated MLP: gate and up from one product, then down."""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.gates import gated
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.domain.families.ops import SwiGLU

A = TypeVar("A")


class SwigluBlock(Generic[A]):
    """down(act(gate(x)) * up(x))."""

    def __init__(self, assembly: Assembly[A], plan: SwiGLU, path: str) -> None:
        self._ops, self._plan = assembly.ops, plan
        self._gate_up = LinearBlock(assembly, (f"{path}.gate", f"{path}.up"))
        self._down = LinearBlock(assembly, (f"{path}.down",))

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The MLP's output for every row."""
        ops, width = self._ops, self._plan.width
        made = self._gate_up(rows)
        gate, up = ops.columns(made, 0, width), ops.columns(made, width, 2 * width)
        return self._down(gated(ops, gate, up, self._plan.activation, self._plan.limit))
