"""The MLP without a gate, in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import ACTIVATIONS
from tensorfold.kernels.reference.linear import linear

Floats = NDArray[np.float64]


def feed_forward(row: Floats, up: Floats, down: Floats, activation: str = "relu2") -> Floats:
    """down(act(up(x))); `up` [F, D], `down` [D, F], no biases."""
    return linear(ACTIVATIONS[activation](linear(row, up)), down)
