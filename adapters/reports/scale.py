"""Round marks along an axis, and numbers as short as they can be read."""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def apart(heights: Sequence[float], least: float) -> list[float]:
    """The heights in their order, moved as little as brings each two `least` apart."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    # Groups that touch are spread around the mean of their members; joining one may make it touch the next.
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _ends(groups[-2], heights, least)[1] + least > _ends(groups[-1], heights, least)[0]:
            last = groups.pop()
            groups[-1] += last
    moved = list(heights)
    for group in groups:
        begin = _ends(group, heights, least)[0]
        for number, index in enumerate(group):
            moved[index] = begin + number * least
    return moved


def _ends(group: Sequence[int], heights: Sequence[float], least: float) -> tuple[float, float]:
    """Where a group spread around its mean begins and ends."""
    middle = sum(heights[index] for index in group) / len(group)
    half = least * (len(group) - 1) / 2
    return middle - half, middle + half
