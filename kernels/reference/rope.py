"""Rotary embedding in float64, pair by pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rotate(
    heads: Floats, positions: NDArray[np.int64], frequencies: Floats, *, interleaved: bool = False, factor: float = 1.0
) -> Floats:
    """`heads` [R, H, D] turned by positions[r] * frequencies[j] in pair j.

    Pair j is dims (j, j + d / 2) or, interleaved, (2j, 2j + 1), d being twice the number of frequencies; later dims
    pass through. Turned dims are multiplied by `factor`.
    """
    turned = heads.astype(np.float64, copy=True)
    pairs = len(frequencies)
    for j, frequency in enumerate(frequencies):
        a, b = (2 * j, 2 * j + 1) if interleaved else (j, j + pairs)
        angle = positions * frequency
        cos, sin = factor * np.cos(angle)[:, None], factor * np.sin(angle)[:, None]
        turned[..., a] = heads[..., a] * cos - heads[..., b] * sin
        turned[..., b] = heads[..., b] * cos + heads[..., a] * sin
    return turned
