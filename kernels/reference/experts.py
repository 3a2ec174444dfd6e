"""Routed and shared experts in float64, one row at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import sigmoid

Floats = NDArray[np.float64]


def mix_experts(row: Floats, chosen: Sequence[int], weights: Floats, expert: Callable[[int, Floats], Floats]) -> Floats:
    """The sum over slots, in their order, of weight times expert(id, row)."""
    made: list[Floats] = [w * expert(e, row) for e, w in zip(chosen, weights, strict=True)]
    total = made[0]
    for one in made[1:]:
        total = total + one
    return total


def shared_expert(row: Floats, made: Floats, switch: Floats | None) -> Floats:
    """What the shared expert `made` of the row, times sigmoid(switch . row) when it has a switch [1, D]."""
    return made if switch is None else made * sigmoid(switch @ row)
