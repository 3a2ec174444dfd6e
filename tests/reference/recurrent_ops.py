"""Ops whose state each row changes, over the references: both delta nets and Mamba-2, behind their convolutions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.ops import GatedDelta, KimiDelta, Mamba2, ShortConv
from tensorfold.kernels.reference.gated_delta import gated_delta_step, gated_norm
from tensorfold.kernels.reference.kimi_delta import channel_decay, kimi_delta_step
from tensorfold.kernels.reference.mamba2 import gate_then_norm, mamba2_step, step_sizes
from tensorfold.kernels.reference.short_conv import no_history, short_conv
from tests.reference.lane import RowContext
from tests.reference.slots import Slots, apply

Floats = NDArray[np.float64]


def convolved(conv: ShortConv, row: Floats, taps: Floats, bias: Floats | None, path: str, at: RowContext) -> Floats:
    """A row behind a short convolution, whose history is left in the buffer `path`."""
    history = at.before(path, no_history(len(row), conv.kernel, conv.dilation))
    made, after = short_conv(history, row, taps[:, 0], conv.dilation, bias, conv.activation)
    at.leave(path, after)
    return made


@apply.register
def _(op: GatedDelta, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    raw = slots.linear("qkv", row)
    mixed = convolved(op.conv, raw, slots["conv"], slots.reader.bias(slots.full("conv")), slots.full("conv"), at)
    empty = np.zeros((op.value_heads, op.key_dim, op.value_dim))
    made, after = gated_delta_step(
        at.before(slots.full("recurrent"), empty),
        mixed,
        slots.linear("a", row),
        slots.linear("b", row),
        slots["decay_log"],
        slots["step_bias"],
        op.key_heads,
        op.l2_eps,
    )
    at.leave(slots.full("recurrent"), after)
    z = slots.linear("z", row).reshape(op.value_heads, op.value_dim)
    weight = slots["norm"] if op.norm.weight else np.ones(op.value_dim)
    return slots.linear("out", gated_norm(made, z, weight, op.norm.eps, op.gate).reshape(-1))


@apply.register
def _(op: KimiDelta, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    raw = np.concatenate([slots.linear(name, row) for name in "qkv"])
    taps = np.concatenate([slots[f"{name}_conv"] for name in "qkv"])
    shape = (op.heads, op.head_dim)
    query, key, value = convolved(op.conv, raw, taps, None, slots.full("conv"), at).reshape(3, *shape)
    decay = channel_decay(
        slots.linear("decay_up", slots.linear("decay_down", row)).reshape(shape),
        slots["decay_log"],
        slots["step_bias"].reshape(shape),
        op.lower_bound,
    )
    state = at.before(slots.full("recurrent"), np.zeros((op.heads, op.head_dim, op.head_dim)))
    made, after = kimi_delta_step(state, query, key, value, decay, slots.linear("beta", row), op.l2_eps)
    at.leave(slots.full("recurrent"), after)
    z = slots.linear("gate_up", slots.linear("gate_down", row)).reshape(shape)
    return slots.linear("out", gated_norm(made, z, slots["norm"], op.norm.eps, "sigmoid").reshape(-1))


@apply.register
def _(op: Mamba2, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    inner, shared = op.heads * op.head_dim, op.groups * op.state
    z, raw, dt = np.split(slots.linear("in", row), [inner, 2 * inner + 2 * shared])
    mixed = convolved(op.conv, raw, slots["conv"], slots.reader.bias(slots.full("conv")), slots.full("conv"), at)
    made, after = mamba2_step(
        at.before(slots.full("recurrent"), np.zeros((op.heads, op.head_dim, op.state))),
        mixed,
        step_sizes(dt, slots["step_bias"], op.step_limit),
        slots["decay_log"],
        slots["skip"],
        op.groups,
    )
    at.leave(slots.full("recurrent"), after)
    weight = slots["norm"] if op.norm.weight else None
    return slots.linear("out", gate_then_norm(made.reshape(-1), z, weight, op.norm.eps, op.norm.groups))
