"""Pointwise functions in float64.

Source: GELU's tanh approximation (Hendrycks and Gimpel), squared ReLU (So et al., "Primer"), the logit soft-cap of
Gemma 2's report.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), from the side where the exponential cannot overflow."""
    small = np.exp(-np.abs(x))
    result: Floats = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return result


def silu(x: Floats) -> Floats:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu_tanh(x: Floats) -> Floats:
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))."""
    result: Floats = 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))
    return result


def relu2(x: Floats) -> Floats:
    """max(x, 0) squared."""
    result: Floats = np.maximum(x, 0.0) ** 2
    return result


def softplus(x: Floats) -> Floats:
    """log(1 + exp(x)), without overflow."""
    result: Floats = np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))
    return result


def softmax(x: Floats, axis: int = -1) -> Floats:
    """exp(x) over its sum along `axis`."""
    weights = np.exp(x - x.max(axis=axis, keepdims=True))
    result: Floats = weights / weights.sum(axis=axis, keepdims=True)
    return result


def soft_cap(x: Floats, cap: float) -> Floats:
    """cap * tanh(x / cap); a cap of 0 leaves x as it is."""
    if not cap:
        return x
    result: Floats = cap * np.tanh(x / cap)
    return result


ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {"silu": silu, "gelu_tanh": gelu_tanh, "relu2": relu2}
