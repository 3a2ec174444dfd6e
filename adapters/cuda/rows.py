"""What a launch tells every block: where its rows stand, which keys they read, which recurrent steps are made.

All tensors are int32 and lie at addresses of their own for each row count, so that a captured graph finds them again.
Knows no request, ticket or draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Tensor = Any  # a torch tensor

RESET, COMMIT, SAVE, RETURN = 1, 2, 4, 8
"""A step starts again from the committed state; its state becomes the committed one; its state is written aside; it
starts again from what was written aside."""
PAGE = 512
"""Positions of a page of keys and values."""
CONV_PAST = 3
"""Inputs before a row's own that a short convolution reads."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a round: `count` R of them, over the L lane slots of a room whose last one is nobody's.

    Rows of one lane are neighbours, in window order. Padding rows are nobody's; what they compute is thrown away.

    `ids`, `positions`, `lanes` [R]: token, absolute position and lane slot.
    `lengths` [R]: keys a row reads, itself included. `committed` [R]: keys of its lane that lie at their own position.
    `slots` [R]: where its own key goes. `path` [R, W]: the slot of the key at position `committed` + i.
    `ring_at` [R]: the flat row (lane * ring + r) of the rings that gets its recurrent inputs.
    `taps` [R, 3]: where the inputs before its own lie, oldest first: a flat ring row, -1 for none, or -(2 + r) for
    row r of this launch.
    `schedule` [L, S, 3] and `counts` [L]: recurrent steps of every lane slot, each a row of the lane's ring, the row of
    the launch that gets the result (-1: none) and flags.
    `places` [L, 2]: the place of the committed state, and the place that SAVE writes.
    `table` [L, P]: pages of each lane.
    """

    count: int
    ids: Tensor
    positions: Tensor
    lanes: Tensor
    lengths: Tensor
    committed: Tensor
    slots: Tensor
    path: Tensor
    ring_at: Tensor
    taps: Tensor
    schedule: Tensor
    counts: Tensor
    places: Tensor
    table: Tensor


@dataclass(frozen=True, slots=True)
class Chunk:
    """A span of one lane's prompt: `count` T rows from position `start` on, behind a committed state.

    `ids`, `positions` int32 [T]; `table` int32 [P], the lane's pages. `place` holds the committed state, which becomes
    the one behind the chunk. `tail` int32 [3]: flat ring rows of the inputs before the chunk, oldest first, -1 for
    none. `leave`: (flat ring row, row of the chunk) of the inputs that must lie in the ring afterwards.
    """

    lane: int
    start: int
    count: int
    ids: Tensor
    positions: Tensor
    table: Tensor
    place: int
    tail: Tensor
    leave: tuple[tuple[int, int], ...]
