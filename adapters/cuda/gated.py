"""Rows through a gate and what it opens: silu(gate) * up."""

from __future__ import annotations

from typing import Any

from tensorfold.adapters.cuda.linear import Linear
from tensorfold.kernels.triton.norms import gated_silu

Tensor = Any


class Gated:
    """Rows [R, K] to silu(gate) * up [R, F] of their dtype; `both` are the products with gate and up, F outputs each.

    `opened` says that `both` is one gated matrix, which a round's rows pass in one launch. A prompt's rows have the
    same bits either way.
    """

    def __init__(self, both: Linear, opened: bool) -> None:
        self._both, self._opened = both, opened

    def decode(self, x: Tensor) -> Tensor:
        """Rows of a round: a row's bits are those it has alone."""
        made = self._both.decode(x)
        return made if self._opened else _gated(made)

    def prompt(self, x: Tensor) -> Tensor:
        """Rows of a prompt: a row's bits hang on neither their number nor its place."""
        return _gated(self._both.prompt(x))


def _gated(both: Tensor) -> Tensor:
    hidden = both.new_empty((len(both), both.shape[1] // 2))
    gated_silu(both, hidden)
    return hidden
