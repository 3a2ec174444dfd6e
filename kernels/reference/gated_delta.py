"""The gated delta net in float64, one convolved row at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import ACTIVATIONS, sigmoid, softplus
from tensorfold.kernels.reference.delta_rule import delta_step
from tensorfold.kernels.reference.norm import rms_norm, unit_length

Floats = NDArray[np.float64]


def head_decay(a: Floats, decay_log: Floats, step_bias: Floats) -> Floats:
    """-exp(decay_log) * softplus(a + step_bias): the log of what a value head keeps, one number each [H]."""
    result: Floats = -np.exp(decay_log) * softplus(a + step_bias)
    return result


def gated_delta_step(
    state: Floats, mixed: Floats, a: Floats, b: Floats, decay_log: Floats, step_bias: Floats, key_heads: int, eps: float
) -> tuple[Floats, Floats]:
    """Result [H, V] and next state of one row.

    `state` [H, K, V]; `mixed` is the convolved row, q | k | v with `key_heads` heads of q and k; `a` and `b` [H].
    Value head h reads key head h // (H / key_heads). Queries and keys have unit length; queries are then divided by
    the root of K.
    """
    heads, width, _ = state.shape
    keys = key_heads * width
    shared = heads // key_heads
    query, key = (
        np.repeat(unit_length(part.reshape(key_heads, width), eps), shared, axis=0)
        for part in (mixed[:keys], mixed[keys : 2 * keys])
    )
    value = mixed[2 * keys :].reshape(heads, -1)
    return delta_step(state, query / np.sqrt(width), key, value, head_decay(a, decay_log, step_bias), sigmoid(b))


def gated_norm(row: Floats, z: Floats, weight: Floats, eps: float, gate: str) -> Floats:
    """RMS norm of each head of `row` [H, V] times `weight` [V], then times silu or sigmoid of `z` [H, V]."""
    opened = sigmoid(z) if gate == "sigmoid" else ACTIVATIONS[gate](z)
    return rms_norm(row, weight, eps) * opened
