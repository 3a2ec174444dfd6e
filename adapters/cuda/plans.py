"""The integers of one launch: from the windows of a round to what blocks read, in numpy.

Rows of a chain that are all kept leave their state in the lane's spare place, so that the next launch replays nothing;
only what was kept in part is replayed, at the start of the schedule that follows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.rows import COMMIT, CONV_PAST, SAVE
from tensorfold.adapters.cuda.tree_steps import tree_steps
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.windows import Window

Ints = NDArray[np.int32]
TREE_STEPS = 72
"""Steps that the branches of a tree of 16 rows take at most: 8 rows on one way, and 8 leaves that each go it again."""


def most_steps(room: Room) -> int:
    """Recurrent steps of one lane in one launch: a window replayed, and another one made."""
    return room.width + max(room.width, TREE_STEPS)


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """One lane's window as integers; rows are counted from 0 within it. Taps below -1 name rows of the window."""

    entry: LaneEntry
    tokens: tuple[int, ...]
    positions: Ints
    path: Ints
    ring: tuple[int, ...]
    taps: Ints
    steps: list[tuple[int, int, int]]


def plan_window(entry: LaneEntry, window: Window, width: int) -> PlannedRows:
    """What a lane's rows need; changes nothing."""
    count, length = len(window), entry.length
    ring = entry.free_rows(count)
    depths = np.asarray(window.depths(), np.int32)
    path = np.zeros((count, width), np.int32)
    taps = np.full((count, CONV_PAST), -1, np.int32)
    if window.is_chain:
        path[:] = length + np.arange(width, dtype=np.int32)
        before = np.arange(count)[:, None] + np.arange(-CONV_PAST, 0)[None, :]
        last = np.asarray(entry.last, np.int32)
        taps[:] = np.where(before >= 0, -(2 + before), last[np.minimum(before, -1)])
    else:
        # A row's way and the inputs before its own are its parent's, and one more.
        sources = [tuple(entry.last)]
        path[0, 0] = length
        for row, parent in enumerate(window.parents[1:], start=1):
            path[row] = path[parent]
            path[row, depths[row]] = length + row
            sources.append((*sources[parent][1:], -(2 + parent)))
        taps[:] = sources
    steps = [(row - entry.own.start, -1, 0) for row in entry.replay]
    if steps:
        steps[-1] = (steps[-1][0], -1, COMMIT)
    steps += _window_steps(window, [row - entry.own.start for row in ring])
    return PlannedRows(entry, window.tokens, length + depths, path, ring, taps, steps)


def _window_steps(window: Window, ring: Sequence[int]) -> list[tuple[int, int, int]]:
    """Steps of a window; the state behind the last row of a chain is left aside."""
    if window.is_chain:
        steps = [(row, at, 0) for at, row in enumerate(ring)]
        steps[-1] = (steps[-1][0], steps[-1][1], SAVE)
        return steps
    return [(ring[row], row if new else -1, flags) for row, new, flags in tree_steps(window.parents)]


def kept(entry: LaneEntry, planned: PlannedRows, path: Sequence[int], *, chain: bool) -> list[tuple[int, int]]:
    """Enter the kept rows of a launch in the book; the key slots to move: (from, to), in order.

    The launch committed what was to be replayed.
    """
    rows = tuple(planned.ring[row] for row in path)
    if chain and path and len(path) == len(planned.tokens):
        entry.rotate()
        entry.replay = ()
    else:
        entry.replay = rows
    entry.last = entry.advanced(rows)
    start = entry.length
    entry.length += len(path)
    return [(start + row, start + at) for at, row in enumerate(path) if row != at]


def left_in_ring(entry: LaneEntry, count: int) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Behind a prompt's span of `count` rows: the flat ring rows of the last inputs, and which of the span go where."""
    sources = [*((row, -1) for row in entry.last), *((-1, at) for at in range(max(0, count - CONV_PAST), count))]
    sources = sources[-CONV_PAST:]
    free = iter(entry.free_rows(CONV_PAST))
    leave: list[tuple[int, int]] = []
    last: list[int] = []
    for row, source in sources:
        if source < 0:
            last.append(row)
        else:
            leave.append((next(free), source))
            last.append(leave[-1][0])
    return tuple(last), leave


def fill(fields: dict[str, NDArray[Any]], planned: Sequence[PlannedRows], rows: int, nobody: LaneEntry) -> None:
    """Write a launch's integers into `fields`, named and shaped as `Rows` has them, for `rows` rows in all."""
    at = 0
    fields["counts"][:] = 0
    for window in planned:
        entry, count = window.entry, len(window.tokens)
        part = slice(at, at + count)
        fields["ids"][part] = window.tokens
        fields["positions"][part] = window.positions
        fields["lanes"][part] = entry.slot
        fields["lengths"][part] = window.positions + 1
        fields["committed"][part] = entry.length
        fields["slots"][part] = entry.length + np.arange(count, dtype=np.int32)
        fields["path"][part] = window.path
        fields["ring_at"][part] = window.ring
        fields["taps"][part] = np.where(window.taps < -1, window.taps - at, window.taps)
        steps = np.asarray(window.steps, np.int32)
        steps[:, 1] = np.where(steps[:, 1] >= 0, steps[:, 1] + at, -1)
        fields["schedule"][entry.slot, : len(steps)] = steps
        fields["counts"][entry.slot] = len(steps)
        fields["places"][entry.slot] = (entry.committed, entry.spare)
        at += count
    rest = slice(at, rows)
    fields["ids"][rest] = 0
    fields["positions"][rest] = 0
    fields["lanes"][rest] = nobody.slot
    fields["lengths"][rest] = 1
    fields["committed"][rest] = 0
    fields["slots"][rest] = 0
    fields["path"][rest] = 0
    fields["ring_at"][rest] = nobody.own.start
    fields["taps"][rest] = -1
