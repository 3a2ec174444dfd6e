"""The gated MLP: gate and up from one product, then down."""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import SwiGLU

A = TypeVar("A")


class SwigluBlock(Generic[A]):
    """down(silu(gate(x)) * up(x)). Raises RefusedError for other activations and for clamped gates."""

    def __init__(self, ops: RowOps[A], plan: SwiGLU, path: str, weights: WeightReader) -> None:
        if plan.activation != "silu" or plan.limit:
            raise RefusedError(f"The MLX backend has no gated MLP of this form yet ({path}); update TensorFold.")
        self._ops, self._width = ops, plan.width
        self._gate_up = LinearBlock(ops, (f"{path}.gate", f"{path}.up"), weights)
        self._down = LinearBlock(ops, (f"{path}.down",), weights)

    def __call__(self, rows: A, context: RowContext[A]) -> A:
        """The MLP's output for every row."""
        ops = self._ops
        made = self._gate_up(rows)
        gate, up = ops.columns(made, 0, self._width), ops.columns(made, self._width, 2 * self._width)
        return self._down(ops.gated_silu(gate, up))
