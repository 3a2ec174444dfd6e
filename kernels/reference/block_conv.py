"""DFlash2's dynamic convolution inside a drafted block, in float64. It never reaches before the block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def dynamic_kernels(rows: Floats, projection: Floats, taps: int) -> Floats:
    """Kernels [R, 2, taps, groups] of a block's normed rows [R, D]: one before the op (0), one after it (1).

    The rows of `projection` are ordered [2, taps, groups].
    """
    made: Floats = rows @ projection.T
    return made.reshape(len(rows), 2, taps, -1)


def block_conv(rows: Floats, base: Floats, dynamic: Floats) -> Floats:
    """Each row [D] of a block plus its neighbours before it, every tap weighed by base + dynamic.

    `base` [taps, D], `dynamic` [R, taps, groups], a group being D / groups neighbouring channels. Tap 0 is the row's
    own, tap t the row t places before; rows before the block are zero.
    """
    width = rows.shape[1] // dynamic.shape[2]
    out = np.zeros_like(rows)
    for r in range(len(rows)):
        for tap in range(min(len(base), r + 1)):
            out[r] += rows[r - tap] * (base[tap] + np.repeat(dynamic[r, tap], width))
    return out
