"""The gated MLP: gate and up from one product, then down."""

from __future__ import annotations

from typing import Any

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.experts import check_activation
from tensorfold.adapters.cuda.rows import Chunk, Rows
from tensorfold.domain.families.ops import SwiGLU
from tensorfold.kernels.triton.norms import gated_silu

Tensor = Any


class SwigluBlock:
    """down(silu(gate(x)) * up(x)); float32 results if `wide`."""

    def __init__(self, assembly: Assembly, plan: SwiGLU, path: str, *, wide: bool = False) -> None:
        check_activation(plan, path)
        self._width = plan.width
        self._gate_up = assembly.products.linear(f"{path}.gate", f"{path}.up")
        self._down = assembly.products.linear(f"{path}.down", wide=wide)

    def decode(self, x: Tensor, at: Rows | None) -> Tensor:
        """Rows of a round [R, D] to [R, D]."""
        return self._down.decode(self._gated(self._gate_up.decode(x)))

    def prompt(self, x: Tensor, at: Chunk | None) -> Tensor:
        """Rows of a prompt [T, D] to [T, D]."""
        return self._down.prompt(self._gated(self._gate_up.prompt(x)))

    def _gated(self, both: Tensor) -> Tensor:
        hidden = both.new_empty((len(both), self._width))
        gated_silu(both, hidden)
        return hidden
