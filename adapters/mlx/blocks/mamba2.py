"""Mamba-2: a convolution, then one matrix of state a head that decays, takes its row in and is read.

Per row and head: S <- exp(A dt) S + (dt x) B^T; y = S C + D x, with B and C shared by the heads of a group; then
silu(z) gates y before the norm in groups. Source: Transformers are SSMs (arXiv 2405.21060), in its recurrent form.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.gated_delta import conv_taps
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import NormBlock
from tensorfold.adapters.mlx.blocks.recurrence import RecurrentState, StatePair
from tensorfold.adapters.mlx.blocks.short_conv import ConvState
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.domain.families.ops import Mamba2

A = TypeVar("A")


def mamba2_step(state: Any, row: tuple[Any, ...]) -> tuple[Any, Any]:
    """One row of the recurrence over G groups of J heads: state [G, J, P, N]; x, times dt, [G, J, P]; decay [G, J];
    B and C [G, N]. Returns the state and its reading [G, J, P].
    """
    x, decay, into, out_of = row
    state = state * decay[:, :, None, None] + x[:, :, :, None] * into[:, None, None, :]
    return state, (state * out_of[:, None, None, :]).sum(axis=-1)


class Mamba2Block(Generic[A]):
    """One projection gives gate, convolved rows and time steps; the state's reading is gated, normed and projected."""

    def __init__(self, assembly: Assembly[A], plan: Mamba2, path: str) -> None:
        ops, weights = assembly.ops, assembly.weights
        self._ops, self._plan = ops, plan
        self._project = LinearBlock(assembly, (f"{path}.in",))
        bias = weights.bias(f"{path}.conv")
        self._taps = ops.float32(conv_taps(weights.floats(f"{path}.conv")))
        self._conv_bias = None if bias is None else ops.float32(bias)
        self._rate: Any = ops.float32(-np.exp(weights.floats(f"{path}.decay_log")))
        self._skip: Any = ops.float32(weights.floats(f"{path}.skip")[:, None])
        self._step_bias = ops.float32(weights.floats(f"{path}.step_bias"))
        self._norm = NormBlock(assembly, plan.norm, f"{path}.norm")
        self._out = LinearBlock(assembly, (f"{path}.out",))
        self._place = assembly.place(self, plan, path)

    def state(self, capacity: int) -> StatePair[A]:
        """The convolution's tail and the recurrence's state."""
        plan = self._plan
        shape = (plan.groups, plan.heads // plan.groups, plan.head_dim, plan.state)
        return StatePair(
            ConvState(self._ops, plan.conv, plan.conv.channels), RecurrentState(self._ops, mamba2_step, shape)
        )

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The layer's output for every row."""
        ops, plan = self._ops, self._plan
        inner, channels = plan.heads * plan.head_dim, plan.conv.channels
        made = self._project(rows)
        z, mixed, steps = (
            ops.columns(made, *span)
            for span in ((0, inner), (inner, inner + channels), (inner + channels, inner + channels + plan.heads))
        )
        dt = self._steps(ops.wide(steps))
        read = ops.join([self._read(mixed, dt, segment) for segment in context.segments])
        gated = ops.gated_silu(ops.wide(z), read)
        return self._out(ops.narrow(self._norm(gated)))

    def _steps(self, dt: Any) -> Any:
        """softplus(dt + bias) [R, H] in float32, cut to the plan's limits."""
        xp = self._ops.xp
        steps = xp.logaddexp(dt + self._step_bias, xp.zeros_like(self._step_bias))
        return steps if self._plan.step_limit is None else xp.clip(steps, *self._plan.step_limit)

    def _read(self, mixed: A, dt: Any, segment: Any) -> Any:
        """What a lane's rows read of its state, plus their skip: [R, H * P] in float32."""
        ops, plan = self._ops, self._plan
        conv, recurrent = segment.states[self._place].parts
        span = (segment.start, segment.stop)
        seen: Any = conv.run(ops.span(mixed, *span), self._taps, self._conv_bias, segment.layout)
        count, inner, shared = segment.stop - segment.start, plan.heads * plan.head_dim, plan.groups * plan.state
        parts: list[Any] = [
            ops.wide(ops.columns(seen, start, stop))
            for start, stop in ((0, inner), (inner, inner + shared), (inner + shared, inner + 2 * shared))
        ]
        x, into, out_of = parts
        x = x.reshape(count, plan.heads, plan.head_dim)
        dt = ops.span(dt, *span)
        grouped = (count, plan.groups, -1)
        inputs = (
            (x * dt[:, :, None]).reshape(*grouped, plan.head_dim),
            ops.xp.exp(dt * self._rate).reshape(grouped),
            into.reshape(grouped),
            out_of.reshape(grouped),
        )
        read = recurrent.run(inputs, segment.layout).reshape(x.shape)
        return (read + x * self._skip).reshape(count, inner)
