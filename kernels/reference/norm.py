"""RMS norm in float64."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rms_norm(rows: Floats, weight: Floats | None, eps: float) -> Floats:
    """rows [..., K] divided by the root of their mean square plus `eps`, times `weight` [K]."""
    normed: Floats = rows / np.sqrt(np.mean(rows * rows, axis=-1, keepdims=True) + eps)
    return normed if weight is None else normed * weight
