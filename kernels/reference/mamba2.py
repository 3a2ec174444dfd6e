"""Mamba-2's selective state space in float64, one convolved row at a time.

Source: "Transformers are SSMs" (Dao, Gu), the recurrent form, with a skip weight per head and the gate before the norm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import silu, softplus
from tensorfold.kernels.reference.norm import rms_norm

Floats = NDArray[np.float64]


def step_sizes(dt: Floats, step_bias: Floats, limit: tuple[float, float] | None) -> Floats:
    """softplus(dt + step_bias) [H], cut to `limit` when there is one."""
    steps = softplus(dt + step_bias)
    return steps if limit is None else np.clip(steps, *limit)


def mamba2_step(
    state: Floats, mixed: Floats, steps: Floats, decay_log: Floats, skip: Floats, groups: int
) -> tuple[Floats, Floats]:
    """Result [H, P] and next state of one row.

    `state` [H, P, N]; `mixed` is the convolved row, x [H * P] | B [groups * N] | C [groups * N]; `steps`, `decay_log`
    and `skip` [H]. Head h reads B and C of group h // (H / groups).
    """
    heads, width, size = state.shape
    inner, shared = heads * width, groups * size
    x = mixed[:inner].reshape(heads, width)
    into = mixed[inner : inner + shared].reshape(groups, size)
    out_of = mixed[inner + shared :].reshape(groups, size)
    after = np.empty_like(state)
    out = np.empty_like(x)
    for head in range(heads):
        group = head // (heads // groups)
        kept = np.exp(-np.exp(decay_log[head]) * steps[head])
        after[head] = kept * state[head] + np.outer(steps[head] * x[head], into[group])
        out[head] = after[head] @ out_of[group] + skip[head] * x[head]
    return out, after


def gate_then_norm(row: Floats, z: Floats, weight: Floats | None, eps: float, groups: int) -> Floats:
    """RMS norm, in `groups` parts, of `row` [K] times silu(z)."""
    return rms_norm(row * silu(z), weight, eps, groups)
