"""The gated delta net: a convolution, then one matrix of state a head that decays, is corrected and is read.

Per row and value head: S <- exp(g) S; d = beta (v - S^T k); S <- S + k d^T; y = S^T q. Source: the published formula
(Gated Delta Networks, arXiv 2412.06464); one decay for each value head.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import numpy as np

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import NormBlock
from tensorfold.adapters.mlx.blocks.recurrence import RecurrentState, StatePair
from tensorfold.adapters.mlx.blocks.short_conv import ConvState
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.domain.families.ops import GatedDelta

A = TypeVar("A")


def delta_step(state: Any, row: tuple[Any, ...]) -> tuple[Any, Any]:
    """One row of the recurrence: state [H, K, V]; q and k [H, K], v [H, V], decay [H] or [H, K], beta [H]."""
    q, k, v, decay, beta = row
    kept = state * (decay[:, None, None] if len(decay.shape) == 1 else decay[:, :, None])
    read = (kept * k[:, :, None]).sum(axis=1)
    state = kept + k[:, :, None] * (beta[:, None] * (v - read))[:, None, :]
    return state, (state * q[:, :, None]).sum(axis=1)


class GatedDeltaBlock(Generic[A]):
    """q, k and v through one convolution; the state's reading is normed, gated and projected."""

    def __init__(self, assembly: Assembly[A], plan: GatedDelta, path: str) -> None:
        ops, weights = assembly.ops, assembly.weights
        self._ops, self._plan = ops, plan
        self._project = LinearBlock(assembly, tuple(f"{path}.{name}" for name in ("qkv", "z", "b", "a")))
        self._taps = ops.float32(conv_taps(weights.floats(f"{path}.conv")))
        self._rate = ops.float32(-np.exp(weights.floats(f"{path}.decay_log")))
        self._step_bias = ops.float32(weights.floats(f"{path}.step_bias"))
        self._norm = NormBlock(assembly, plan.norm, f"{path}.norm")
        self._out = LinearBlock(assembly, (f"{path}.out",))
        self._place = assembly.place(self, plan, path)

    def state(self, capacity: int) -> StatePair[A]:
        """The convolution's tail and the recurrence's state."""
        plan = self._plan
        shape = (plan.value_heads, plan.key_dim, plan.value_dim)
        return StatePair(
            ConvState(self._ops, plan.conv, plan.conv.channels), RecurrentState(self._ops, delta_step, shape)
        )

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The layer's output for every row."""
        ops = self._ops
        qkv, z, b, a = self._project.split(rows)
        beta, decay = ops.sigmoid(ops.wide(b)), self._decay(ops.wide(a))
        read = []
        for segment in context.segments:
            conv, recurrent = segment.states[self._place].parts
            span = (segment.start, segment.stop)
            mixed = conv.run(ops.span(qkv, *span), self._taps, None, segment.layout)
            inputs = (*self._heads(mixed), ops.span(decay, *span), ops.span(beta, *span))
            read.append(recurrent.run(inputs, segment.layout))
        made: Any = self._norm(ops.narrow(ops.join(read)))
        return self._out(self._gated(made.reshape(made.shape[0], -1), z))

    def _decay(self, a: Any) -> A:
        """exp(g) of every value head, g = -exp(A) * softplus(a + bias)."""
        xp = self._ops.xp
        decay: A = xp.exp(self._rate * xp.logaddexp(a + self._step_bias, xp.zeros_like(self._rate)))
        return decay

    def _heads(self, mixed: Any) -> tuple[Any, Any, Any]:
        """Queries and keys of unit length, repeated for each value head, and values, all float32."""
        plan = self._plan
        keys = plan.key_heads * plan.key_dim
        wide: Any = self._ops.wide(mixed)
        count = wide.shape[0]
        q = unit(self._ops.xp, wide[:, :keys].reshape(count, plan.key_heads, -1), plan.l2_eps)
        k = unit(self._ops.xp, wide[:, keys : 2 * keys].reshape(count, plan.key_heads, -1), plan.l2_eps)
        v = wide[:, 2 * keys :].reshape(count, plan.value_heads, -1)
        times = plan.value_heads // plan.key_heads
        q, k = (self._ops.xp.repeat(part, times, axis=1) for part in (q * plan.key_dim**-0.5, k))
        return q, k, v

    def _gated(self, made: Any, z: A) -> A:
        if self._plan.gate == "silu":
            return self._ops.gated_silu(z, made)
        gated: A = self._ops.sigmoid(z) * made
        return gated


def unit(xp: Any, heads: Any, eps: float) -> Any:
    """Heads [R, H, D] divided by their length, `eps` added to its square."""
    return heads / xp.sqrt((heads * heads).sum(axis=-1, keepdims=True) + eps)


def conv_taps(weight: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A convolution's weight [C, 1, taps] as [taps, C], oldest first."""
    return np.ascontiguousarray(weight[:, 0, :].T)
