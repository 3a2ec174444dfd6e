"""What turns the residual into the head's input."""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.norm import norm_block
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.plans import Readout

A = TypeVar("A")


class ReadoutBlock(Generic[A]):
    """A norm of the residual, of the mean of its streams, or a learnt mixture of them."""

    def __init__(self, assembly: Assembly[A], plan: Readout, path: str) -> None:
        if plan.form != "norm":
            raise RefusedError(f"The MLX backend cannot build a {plan.form} readout yet.")
        self._norm = norm_block(assembly, plan.norm, f"{path}.norm")

    def __call__(self, stream: A) -> A:
        """Rows [R, D] of the residual [R, streams * D]."""
        return stream if self._norm is None else self._norm(stream)
