"""Routed experts beside a shared one: every row through the experts it chose, summed in slot order in float32."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly, Block
from tensorfold.adapters.mlx.blocks.feed_forward import FeedForwardBlock
from tensorfold.adapters.mlx.blocks.gates import activated, gated
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.router import RouterBlock
from tensorfold.adapters.mlx.blocks.swiglu import SwigluBlock
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, SharedExpert, SwiGLU

A = TypeVar("A")


class ExpertsBlock(Generic[A]):
    """The routed sum, through a narrower latent where the plan has one, plus the shared expert; rounded once."""

    def __init__(self, assembly: Assembly[A], plan: MixtureOfExperts, path: str) -> None:
        self._ops = assembly.ops
        self._choose = RouterBlock(assembly, plan.router, f"{path}.router")
        self._experts = ExpertStacks(assembly, plan.expert, f"{path}.experts")
        self._narrow = LinearBlock(assembly, (f"{path}.latent_down",)) if plan.latent else None
        self._widen = LinearBlock(assembly, (f"{path}.latent_up",)) if plan.latent else None
        self._shared = None if plan.shared is None else SharedExpertBlock(assembly, plan.shared, f"{path}.shared")

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The experts' output for every row."""
        ops = self._ops
        ids, weights = self._choose(rows, residual)
        total: Any = combined(ops, self._experts(rows if self._narrow is None else self._narrow(rows), ids), weights)
        if self._widen is not None:
            total = ops.wide(self._widen(ops.narrow(total)))
        return ops.narrow(total if self._shared is None else total + self._shared(rows, context, residual))


class ExpertStacks(Generic[A]):
    """The matrices of all experts, of which each row passes those it is given."""

    def __init__(self, assembly: Assembly[A], plan: SwiGLU | FeedForward, path: str) -> None:
        ops, weights = assembly.ops, assembly.weights
        self._ops, self._plan = ops, plan
        self._gate = ops.grouped(weights.stack(f"{path}.gate")) if isinstance(plan, SwiGLU) else None
        self._up = ops.grouped(weights.stack(f"{path}.up"))
        self._down = ops.grouped(weights.stack(f"{path}.down"))

    def __call__(self, rows: Any, ids: A) -> A:
        """What the experts `ids` [R, k] make of their rows [R, K]: [R, k, N]."""
        each = rows[:, None, :]
        up = self._up(each, ids)
        if self._gate is None:
            return self._down(activated(self._ops, up, self._plan.activation), ids)
        assert isinstance(self._plan, SwiGLU)
        return self._down(gated(self._ops, self._gate(each, ids), up, self._plan.activation, self._plan.limit), ids)


class SharedExpertBlock(Generic[A]):
    """The expert of every row, in float32, times the sigmoid of its switch where it has one."""

    def __init__(self, assembly: Assembly[A], plan: SharedExpert, path: str) -> None:
        self._ops = assembly.ops
        self._expert: Block[A]
        if isinstance(plan.op, SwiGLU):
            self._expert = SwigluBlock(assembly, plan.op, path)
        else:
            self._expert = FeedForwardBlock(assembly, plan.op, path)
        self._switch = LinearBlock(assembly, (f"{path}.switch",)) if plan.gated else None

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The shared expert's part of every row."""
        ops = self._ops
        made: Any = ops.wide(self._expert(rows, context, residual))
        gated: A = made if self._switch is None else made * ops.sigmoid(ops.wide(self._switch(rows)))
        return gated


def combined(ops: RowOps[A], made: A, weights: Any) -> A:
    """The sum over slots of `weights` [R, k] times `made` [R, k, N], slot after slot, in float32: [R, N]."""
    weighted: Any = ops.wide(made) * weights[:, :, None]
    total = weighted[:, 0]
    for slot in range(1, weighted.shape[1]):
        total = total + weighted[:, slot]
    return total  # type: ignore[no-any-return]
