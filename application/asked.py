"""What a launch may ask of a lane, checked before any row is run. Every ValueError here is a fault of the caller."""

from __future__ import annotations

import numpy as np

from tensorfold.application.ports.target_model import LaneWindow, ModelLimits
from tensorfold.domain.windows import Window


def check_asked(asked: LaneWindow, absorbed: int, limits: ModelLimits) -> None:
    """Raise ValueError for a position, window, id or mask that a lane with `absorbed` tokens cannot take."""
    window = asked.window
    if asked.position != absorbed:
        raise ValueError(f"lane {asked.lane} absorbed {absorbed} tokens, row 0 claims {asked.position}")
    most = limits.chain_width if window.is_chain else limits.tree_width
    if not 0 < len(window) <= most:
        raise ValueError(f"a {'chain' if window.is_chain else 'tree'} of {len(window)} rows; the limit is {most}")
    _check_shape(window)
    check_ids(min(window.tokens), max(window.tokens), limits.vocabulary)
    if asked.masks is not None:
        _check_masks(asked, limits.vocabulary)


def check_ids(least: int, most: int, vocabulary: int) -> None:
    """Raise ValueError for ids outside the vocabulary."""
    if least < 0 or most >= vocabulary:
        raise ValueError(f"ids from {least} to {most}; the vocabulary has {vocabulary}")


def _check_shape(window: Window) -> None:
    parents, rows, forced = window.parents, len(window), window.forced
    if not window.is_chain:
        ordered = len(parents) == rows and all(0 <= parent < row for row, parent in enumerate(parents[1:], start=1))
        if not ordered or parents[0] != -1:
            raise ValueError("a row of a window follows one that does not stand before it")
        if parents[1 : forced + 1] != tuple(range(forced)) or any(p < forced for p in parents[forced + 1 :]):
            raise ValueError("forced rows are not one chain above every draft")
    if len(parents) != rows or not 0 <= forced < rows:
        raise ValueError(f"{forced} forced rows and {len(parents)} parents in a window of {rows} rows")


def _check_masks(asked: LaneWindow, vocabulary: int) -> None:
    masks, words = asked.masks or (), (vocabulary + 31) // 32
    if len(masks) != len(asked.window):
        raise ValueError(f"{len(masks)} masks for {len(asked.window)} rows")
    for mask in masks:
        if mask is not None and (mask.dtype != np.uint32 or mask.shape != (words,) or not mask.any()):
            raise ValueError(f"a mask is not {words} uint32 words that allow some token")
