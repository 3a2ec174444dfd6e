"""The MLP without a gate: up, squared ReLU, down."""

from __future__ import annotations

from typing import Any

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.experts import check_activation
from tensorfold.adapters.cuda.rows import Chunk, Rows
from tensorfold.domain.families.ops import FeedForward
from tensorfold.kernels.triton.norms import squared_relu

Tensor = Any


class FeedForwardBlock:
    """down(relu(up(x)) ** 2); float32 results if `wide`."""

    def __init__(self, assembly: Assembly, plan: FeedForward, path: str, *, wide: bool = False) -> None:
        check_activation(plan, path)
        self._up = assembly.products.linear(f"{path}.up")
        self._down = assembly.products.linear(f"{path}.down", wide=wide)

    def decode(self, x: Tensor, at: Rows | None) -> Tensor:
        """Rows of a round [R, D] to [R, D]."""
        return self._down.decode(self._squared(self._up.decode(x)))

    def prompt(self, x: Tensor, at: Chunk | None) -> Tensor:
        """Rows of a prompt [T, D] to [T, D]."""
        return self._down.prompt(self._squared(self._up.prompt(x)))

    def _squared(self, up: Tensor) -> Tensor:
        hidden = torch.empty_like(up)
        squared_relu(up, hidden)
        return hidden
