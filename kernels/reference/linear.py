"""A projection in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def linear(rows: Floats, weight: Floats, bias: Floats | None = None) -> Floats:
    """rows [..., K] times the transpose of `weight` [N, K], plus `bias` [N]; result [..., N]."""
    made: Floats = rows @ weight.T
    return made if bias is None else made + bias
