"""Round marks along an axis, and numbers as short as they can be read."""

from __future__ import annotations

import math

_STEPS = (1, 2, 2.5, 5, 10)
_MARKS = 5


def ticks(most: float) -> tuple[float, ...]:
    """Marks from 0 past `most` in equal steps of 1, 2, 2.5 or 5 times a power of ten; at least two, six at most."""
    if most <= 0:
        return 0.0, 1.0
    rough = most / _MARKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next((power * factor for factor in _STEPS if power * factor >= rough), power * 10)
    return tuple(step * number for number in range(max(1, math.ceil(most / step - 1e-9)) + 1))


def labels(marks: tuple[float, ...]) -> tuple[str, ...]:
    """The marks as text, all with as many decimals as the step needs."""
    step = marks[1]
    decimals = next((places for places in range(4) if round(step, places) == round(step, 9)), 4)
    return tuple(f"{mark:,.{decimals}f}" if step >= 1e-4 else f"{mark:g}" for mark in marks)


def short(value: float) -> str:
    """Three digits that count, or the whole number where it has more."""
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 1e-4 else f"{value:.1e}"
