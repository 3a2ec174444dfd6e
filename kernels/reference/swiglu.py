"""The gated MLP in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def gated_silu(gate: Floats, up: Floats) -> Floats:
    """gate * sigmoid(gate) * up."""
    result: Floats = gate / (1.0 + np.exp(-gate)) * up
    return result
