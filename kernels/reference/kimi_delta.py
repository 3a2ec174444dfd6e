"""Kimi delta attention in float64: the delta rule with a decay for each key channel.

Source: the Kimi Linear report; the bounded decay is the form with a lower bound, "safe gate".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import sigmoid, softplus
from tensorfold.kernels.reference.delta_rule import delta_step
from tensorfold.kernels.reference.norm import unit_length

Floats = NDArray[np.float64]


def channel_decay(a: Floats, decay_log: Floats, step_bias: Floats, lower_bound: float | None) -> Floats:
    """The log of what each key channel keeps [H, K] of `a` and `step_bias` [H, K] and `decay_log` [H].

    lower_bound * sigmoid(exp(decay_log) * (a + step_bias)), or -exp(decay_log) * softplus(a + step_bias) without one.
    """
    speed = np.exp(decay_log)[:, None]
    if lower_bound is not None:
        return lower_bound * sigmoid(speed * (a + step_bias))
    return -speed * softplus(a + step_bias)


def kimi_delta_step(
    state: Floats, query: Floats, key: Floats, value: Floats, decay: Floats, b: Floats, eps: float
) -> tuple[Floats, Floats]:
    """Result [H, V] and next state of one row; `query`, `key` and `decay` [H, K], `value` [H, V], `b` [H].

    Queries and keys are convolved rows; both get unit length here, and queries are divided by the root of K.
    """
    unit = unit_length(query, eps) / np.sqrt(query.shape[-1])
    return delta_step(state, unit, unit_length(key, eps), value, decay, sigmoid(b))
