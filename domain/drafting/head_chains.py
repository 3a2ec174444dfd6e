"""What a head's chain is worth: where its confidences end it, and the chance of each of its drafts to be kept.

Knows confidences only. A chain's first draft always stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import isfinite
from operator import mul


def confident(confidence: Sequence[float], least: float, *, whole_run: bool) -> int:
    """How many drafts of a chain stay: it ends before the first, behind draft 1, of less confidence than `least`.

    With `whole_run` the product of a chain's confidences counts, otherwise each draft's own. What is not a number ends
    a chain.
    """
    marks = accumulate(confidence, mul) if whole_run else iter(confidence)
    for at, mark in enumerate(marks):
        if not isfinite(mark) or (at and mark < least):
            return at
    return len(confidence)


def chain_chances(confidence: Sequence[float]) -> tuple[float, ...]:
    """Unconditional chances of a chain's drafts, from the confidence in each given those before it."""
    return tuple(accumulate((min(max(each, 0.0), 1.0) for each in confidence), mul))
