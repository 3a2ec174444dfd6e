"""Seeded float64 arrays for the oracles' tests."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def normal(seed: int, *shape: int) -> Floats:
    """Standard normal values of a shape."""
    return np.random.default_rng(seed).standard_normal(shape)
