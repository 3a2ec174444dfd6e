"""Depthwise causal convolution over time in float64, one row at a time with the rows before it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import ACTIVATIONS

Floats = NDArray[np.float64]


def no_history(channels: int, kernel: int, dilation: int = 1) -> Floats:
    """The rows before the first: zeros [(kernel - 1) * dilation, channels]."""
    return np.zeros(((kernel - 1) * dilation, channels), np.float64)


def short_conv(
    history: Floats,
    row: Floats,
    taps: Floats,
    dilation: int = 1,
    bias: Floats | None = None,
    activation: str | None = "silu",
) -> tuple[Floats, Floats]:
    """The convolved row [C] and the history behind it.

    `history` holds the last (kernel - 1) * dilation rows as they were before the convolution, oldest first; `taps`
    [C, kernel]. Tap j multiplies the row (kernel - 1 - j) * dilation places back: the last tap is the row's own.
    """
    rows = np.concatenate([history, row[None]])
    kernel = taps.shape[1]
    out = np.zeros_like(row)
    for j in range(kernel):
        out = out + taps[:, j] * rows[j * dilation]
    if bias is not None:
        out = out + bias
    return (ACTIVATIONS[activation](out) if activation else out), rows[1:]
