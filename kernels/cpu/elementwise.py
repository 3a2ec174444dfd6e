"""The per-row operations around the products, in float32 numpy: norm, rotation, gate.

Each works on contiguous rows with reductions inside one row only, so rows are independent by construction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
ONE = np.float32(1.0)


def rms_norm(rows: Rows, weight: Rows | None, eps: float) -> Rows:
    """rows / sqrt(mean(rows^2) + eps) over the last axis, times `weight`; shapes [..., K], [K]."""
    mean = np.add.reduce(rows * rows, axis=-1, keepdims=True)
    mean /= np.float32(rows.shape[-1])
    mean += np.float32(eps)
    np.sqrt(mean, out=mean)
    np.divide(ONE, mean, out=mean)
    normed: Rows = np.multiply(rows, mean)
    if weight is not None:
        normed *= weight
    return normed


def rotate(heads: Rows, cos: Rows, sin: Rows, interleaved: bool) -> Rows:
    """Rotary embedding of `heads` [R, H, D] by `cos`, `sin` [R, 1, d / 2]; dims past d pass through."""
    half = cos.shape[-1]
    turned = np.empty_like(heads)
    if interleaved:
        first, second = heads[..., 0 : 2 * half : 2], heads[..., 1 : 2 * half : 2]
        out_first, out_second = turned[..., 0 : 2 * half : 2], turned[..., 1 : 2 * half : 2]
    else:
        first, second = heads[..., :half], heads[..., half : 2 * half]
        out_first, out_second = turned[..., :half], turned[..., half : 2 * half]
    np.subtract(first * cos, second * sin, out=out_first)
    np.add(second * cos, first * sin, out=out_second)
    turned[..., 2 * half :] = heads[..., 2 * half :]
    return turned


def sigmoid(rows: Rows) -> Rows:
    """1 / (1 + exp(-x)), elementwise."""
    made = np.negative(np.ascontiguousarray(rows))
    with np.errstate(over="ignore"):  # exp(-x) past float32 is inf, and 1 / inf the right limit
        np.exp(made, out=made)
    made += ONE
    np.divide(ONE, made, out=made)
    return made


def gated_silu(gate: Rows, up: Rows) -> Rows:
    """gate * sigmoid(gate) * up, elementwise."""
    gate = np.ascontiguousarray(gate)
    spare = np.negative(gate)
    with np.errstate(over="ignore"):  # exp(-gate) past float32 is inf, and gate / inf the right limit
        np.exp(spare, out=spare)
    spare += ONE
    np.divide(gate, spare, out=spare)
    spare *= up
    return spare
