"""Kimi delta attention: the delta rule with a decay for every key channel, behind three convolutions side by side.

Per row and head: S <- exp(g)[:, None] S; d = beta (v - S^T k); S <- S + k d^T; y = S^T q. Source: the Kimi Linear
report (arXiv 2510.26692); the decay with a lower bound is its "safe gate".
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.gated_delta import conv_taps, delta_step, unit
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.recurrence import RecurrentState, StatePair
from tensorfold.adapters.mlx.blocks.short_conv import ConvState
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.domain.families.ops import KimiDelta

A = TypeVar("A")


class KimiDeltaBlock(Generic[A]):
    """Queries, keys and values through one convolution of 3 * inner channels; decay and gate through narrow pairs."""

    def __init__(self, assembly: Assembly[A], plan: KimiDelta, path: str) -> None:
        ops, weights = assembly.ops, assembly.weights
        self._ops, self._plan, self._inner = ops, plan, plan.heads * plan.head_dim
        names = ("q", "k", "v", "decay_down", "gate_down", "beta")
        self._project = LinearBlock(assembly, tuple(f"{path}.{name}" for name in names))
        self._decay_up = LinearBlock(assembly, (f"{path}.decay_up",))
        self._gate_up = LinearBlock(assembly, (f"{path}.gate_up",))
        parts = [conv_taps(weights.floats(f"{path}.{name}_conv")) for name in ("q", "k", "v")]
        self._taps = ops.float32(np.ascontiguousarray(np.concatenate(parts, axis=1)))
        self._rate = ops.float32(np.exp(weights.floats(f"{path}.decay_log"))[:, None])
        self._step_bias = ops.float32(weights.floats(f"{path}.step_bias").reshape(plan.heads, plan.head_dim))
        self._norm = ops.float32(weights.floats(f"{path}.norm")) if plan.norm.weight else None
        self._out = LinearBlock(assembly, (f"{path}.out",))
        self._place = assembly.place(self, plan, path)

    def state(self, capacity: int) -> StatePair[A]:
        """The convolutions' tail and the recurrence's state."""
        plan, ops = self._plan, self._ops
        shape = (plan.heads, plan.head_dim, plan.head_dim)
        return StatePair(ConvState(ops, plan.conv, 3 * self._inner), RecurrentState(ops, delta_step, shape))

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The layer's output for every row."""
        ops = self._ops
        q, k, v, decay_down, gate_down, beta = self._project.split(rows)
        mixed = ops.xp.concatenate([q, k, v], axis=-1)
        decay = self._decay(self._decay_up(decay_down))
        beta = ops.sigmoid(ops.wide(beta))
        read = []
        for segment in context.segments:
            conv, recurrent = segment.states[self._place].parts
            span = (segment.start, segment.stop)
            convolved = conv.run(ops.span(mixed, *span), self._taps, None, segment.layout)
            inputs = (*self._heads(convolved), ops.span(decay, *span), ops.span(beta, *span))
            read.append(recurrent.run(inputs, segment.layout))
        return self._out(self._gated(ops.join(read), self._gate_up(gate_down)))

    def _decay(self, a: A) -> A:
        """exp(g) of every key channel [R, H, D], g within `lower_bound` and 0 where the plan has one."""
        ops, bound = self._ops, self._plan.lower_bound
        rate: Any = self._rate
        pushed: Any = ops.wide(ops.heads(a, self._plan.heads))
        pushed = pushed + self._step_bias
        if bound is not None:
            g: Any = bound * ops.sigmoid(rate * pushed)  # type: ignore[operator]
        else:
            g = -rate * ops.xp.logaddexp(pushed, ops.xp.zeros_like(self._step_bias))
        decay: A = ops.xp.exp(g)
        return decay

    def _heads(self, mixed: A) -> tuple[Any, Any, Any]:
        """Queries and keys of unit length, and values, [R, H, D] in float32."""
        ops, plan, inner = self._ops, self._plan, self._inner
        wide = ops.wide(mixed)
        q, k, v = (ops.heads(ops.columns(wide, at * inner, (at + 1) * inner), plan.heads) for at in range(3))
        xp = ops.xp
        return unit(xp, q, plan.l2_eps) * plan.head_dim**-0.5, unit(xp, k, plan.l2_eps), v

    def _gated(self, read: A, gate: A) -> A:
        """Each head's reading normed, times the sigmoid of its gate, in float32 until the one rounding."""
        ops = self._ops
        normed: Any = ops.norm(read, self._norm, self._plan.norm.eps)
        made = normed.reshape(normed.shape[0], -1) * ops.sigmoid(ops.wide(gate))
        return ops.narrow(made)
