"""What a recurrent step needs besides its inputs: decays, step sizes and write strengths, in float32, elementwise.

A decay is handed on as the factor exp(log decay), in (0, 1].
"""

from __future__ import annotations

import math

import mlx.core as mx

from tensorfold.kernels.metal.activations import ACTIVATIONS
from tensorfold.kernels.metal.launch import MetalKernel

THREADS = 64

DELTA = MetalKernel(
    name="delta_decay",
    inputs=("a", "decay_log", "step_bias", "bound"),
    outputs=("decay",),
    header=ACTIVATIONS,
    body="""
  const int i = int(thread_position_in_grid.x), channel = i % (HEADS * CHANNELS);
  const float rate = metal::precise::exp(float(decay_log[channel / CHANNELS]));
  const float moved = float(a[i]) + float(step_bias[channel]);
  const float log_decay = BOUNDED ? bound * sigmoid_of(rate * moved) : -rate * softplus_of(moved);
  decay[i] = metal::precise::exp(log_decay);
""",
)

MAMBA = MetalKernel(
    name="mamba_steps",
    inputs=("dt", "decay_log", "step_bias", "low", "high"),
    outputs=("steps", "decay"),
    header=ACTIVATIONS,
    body="""
  const int i = int(thread_position_in_grid.x), head = i % HEADS;
  const float stepped = softplus_of(float(dt[i]) + float(step_bias[head]));
  const float step = LIMITED ? clamp(stepped, float(low), float(high)) : stepped;
  steps[i] = step;
  decay[i] = metal::precise::exp(-metal::precise::exp(float(decay_log[head])) * step);
""",
)


def delta_decay(a: mx.array, decay_log: mx.array, step_bias: mx.array, bound: float | None = None) -> mx.array:
    """Decays of a gated delta net ([R, H]) or of Kimi delta ([R, H * D]), shaped as `a`, float32.

    exp(-exp(decay_log) * softplus(a + step_bias)), or exp(bound * sigmoid(exp(decay_log) * (a + step_bias))) with a
    lower `bound`. `decay_log` [H]; `step_bias` as wide as a row.
    """
    heads, channels = decay_log.size, a.shape[-1] // decay_log.size
    (decay,) = DELTA(
        [a, decay_log, step_bias, mx.array(bound or 0.0, mx.float32)],
        grid=(math.prod(a.shape), 1, 1),
        threadgroup=(THREADS, 1, 1),
        shapes=[tuple(a.shape)],
        dtypes=[mx.float32],
        HEADS=heads,
        CHANNELS=channels,
        BOUNDED=bound is not None,
    )
    return decay


def mamba_steps(
    dt: mx.array, decay_log: mx.array, step_bias: mx.array, limit: tuple[float, float] | None = None
) -> tuple[mx.array, mx.array]:
    """Steps softplus(dt + step_bias), clamped to `limit`, and decays exp(-exp(decay_log) * step): float32 [R, H]."""
    low, high = limit or (0.0, 0.0)
    steps, decay = MAMBA(
        [dt, decay_log, step_bias, mx.array(low, mx.float32), mx.array(high, mx.float32)],
        grid=(math.prod(dt.shape), 1, 1),
        threadgroup=(THREADS, 1, 1),
        shapes=[tuple(dt.shape)] * 2,
        dtypes=[mx.float32] * 2,
        HEADS=decay_log.size,
        LIMITED=limit is not None,
    )
    return steps, decay
