"""Depthwise causal convolution over time: a few taps, a tail of rows before the window, branches through ancestors.

One thread makes one channel of one row: one chain over the taps, oldest first. The tail holds raw inputs, so keeping
rows is a choice of rows and computes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from tensorfold.kernels.metal.activations import ACTIVATIONS, KINDS, Activation
from tensorfold.kernels.metal.launch import MetalKernel
from tensorfold.kernels.metal.windows import Window

THREADS = 256

CONV = MetalKernel(
    name="short_conv",
    inputs=("x", "tail", "weight", "bias", "ancestors", "depths"),
    outputs=("y",),
    header=ACTIVATIONS,
    body="""
  const int channel = int(thread_position_in_grid.x), row = int(thread_position_in_grid.y);
  float sum = 0.0f;
  for (int tap = 0; tap < TAPS; tap++) {
    const int place = depths[row] - (TAPS - 1 - tap) * DILATION;
    const float value = place < 0
        ? float(tail[size_t((TAPS - 1) * DILATION + place) * CHANNELS + channel])
        : float(x[size_t(ancestors[row * ancestors_shape[1] + place]) * CHANNELS + channel]);
    sum = fma(float(weight[channel * TAPS + tap]), value, sum);
  }
  if (BIASED) sum = sum + float(bias[channel]);
  y[size_t(row) * CHANNELS + channel] = T(activated<KIND>(sum));
""",
)


def short_conv(
    x: mx.array,
    tail: mx.array,
    weight: mx.array,
    rows: Window,
    bias: mx.array | None = None,
    activation: Activation = "silu",
    dilation: int = 1,
) -> mx.array:
    """activation(conv(x) + bias) [R, C], in the dtype of `x` [R, C].

    `weight` [C, taps], the last tap reads the row itself; `tail` [(taps - 1) * dilation, C] holds the rows before the
    window, zeros at the start of a sequence.
    """
    (count, channels), taps = x.shape, weight.shape[1]
    (y,) = CONV(
        [x, tail, weight, weight if bias is None else bias, rows.ancestors, rows.depths],
        grid=(channels, count, 1),
        threadgroup=(min(THREADS, channels), 1, 1),
        shapes=[(count, channels)],
        dtypes=[x.dtype],
        T=x.dtype,
        CHANNELS=channels,
        TAPS=taps,
        DILATION=dilation,
        BIASED=bias is not None,
        KIND=KINDS[activation],
    )
    return y


def kept_tail(tail: mx.array, x: mx.array, path: Sequence[int]) -> mx.array:
    """The tail after the rows of `path` were kept."""
    joined = mx.concatenate([tail, x[mx.array(list(path))]], axis=0)
    return joined[joined.shape[0] - tail.shape[0] :]
