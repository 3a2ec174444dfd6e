"""The gated MLP in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import ACTIVATIONS, silu
from tensorfold.kernels.reference.linear import linear

Floats = NDArray[np.float64]


def gated_silu(gate: Floats, up: Floats) -> Floats:
    """gate * sigmoid(gate) * up."""
    return silu(gate) * up


def gated(gate: Floats, up: Floats, activation: str = "silu", limit: float = 0.0) -> Floats:
    """act(gate) * up; with a `limit` L, gate is first cut above at L and up on both sides at L."""
    if limit:
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
    return ACTIVATIONS[activation](gate) * up


def swiglu(row: Floats, gate: Floats, up: Floats, down: Floats, activation: str = "silu", limit: float = 0.0) -> Floats:
    """down(act(gate(x)) * up(x)); `gate` and `up` [F, D], `down` [D, F], no biases."""
    return linear(gated(linear(row, gate), linear(row, up), activation, limit), down)
