"""How an op's input is read from the residual and its output written back: plainly, or through hyper-connections."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.plans import Plain, Residual

A = TypeVar("A")


class ResidualBlock(Protocol[A]):
    """One site of the residual; streams lie side by side in a row [R, streams * D]."""

    def read(self, stream: A) -> tuple[A, Any]:
        """The op's input [R, D] before its norm, and what `write` needs of this pass."""
        ...

    def write(self, stream: A, made: A, mix: Any) -> A:
        """The residual with the op's output in it."""
        ...


class PlainResidual(Generic[A]):
    """x + f(x)."""

    def __init__(self, ops: RowOps[A]) -> None:
        self._ops = ops

    def read(self, stream: A) -> tuple[A, None]:
        """The residual itself."""
        return stream, None

    def write(self, stream: A, made: A, mix: None) -> A:
        """Their sum."""
        return self._ops.add(stream, made)


def residual_block(assembly: Assembly[A], plan: Residual, path: str) -> ResidualBlock[A]:
    """The block of a residual's form."""
    if isinstance(plan, Plain):
        return PlainResidual(assembly.ops)
    raise RefusedError(f"The MLX backend has no {plan.form} residual yet ({path}); update TensorFold.")
