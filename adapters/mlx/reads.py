"""Which keys the rows of one branch read: all up to their own position, or the blocks chosen for each and its tail.

Keys come in parts that stand one behind another: the committed ones, then those of the branch. Knows no projection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Reads(Generic[A]):
    """Rows at absolute `positions` [R], scores times `scale`.

    With `chosen`, booleans [R, blocks] on the device, row r reads the `count` blocks of `ratio` keys marked for it and
    the keys behind its last complete block; without, every key up to its own.
    """

    positions: NDArray[np.int64]
    scale: float
    ratio: int = 0
    count: int = 0
    chosen: A | None = None

    @property
    def stop(self) -> int:
        """Keys from here on are read by none of the rows."""
        return int(self.positions.max()) + 1

    @property
    def complete(self) -> NDArray[np.int64]:
        """How many blocks are complete where each row stands, [R]."""
        made: NDArray[np.int64] = (self.positions + 1) // self.ratio
        return made


def best_blocks(xp: Any, scores: Any, visible: NDArray[np.int64], count: int) -> Any:
    """Booleans [R, B]: the `count` highest `scores` [R, B] among the first `visible[r]` blocks of each row.

    Equal scores go to the lower block. At least `count` blocks are visible to every row. Only comparisons and whole
    numbers follow the scores, so the choice is the same however many rows are asked at once.
    """
    blocks = scores.shape[-1]
    seen = xp.arange(blocks)[None] < xp.array(visible)[:, None]
    # What is no number is the lowest score, so that every row has its `count` blocks whatever its lane holds.
    scores = xp.where(seen & (scores == scores), scores, -float("inf"))
    least = xp.sort(scores, axis=-1)[:, blocks - count : blocks - count + 1]
    above, level = scores > least, scores == least
    left = count - above.astype(xp.int32).sum(axis=-1, keepdims=True)
    return above | (level & (xp.cumsum(level.astype(xp.int32), axis=-1) <= left))
