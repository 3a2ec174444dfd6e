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


LINES = ("ids", "positions", "lanes", "lengths", "committed", "slots", "ring_at")
"""The fields of `Rows` that have one number a row, in the order in which they lie in a block."""
_ORDER = np.arange(1024, dtype=np.int32)
"""More than the rows of any window, and than the slots of a row's way."""
_INPUTS = _ORDER[:, None] + _ORDER[None, :CONV_PAST]


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """One lane's window as integers; rows are counted from 0 within it. Taps below -1 name rows of the window.

    `ways` are the slots that each row of a tree reads behind what is committed, its own the last; a chain's are those
    of its own positions.
    """

    entry: LaneEntry
    tokens: tuple[int, ...]
    positions: tuple[int, ...]
    ways: list[list[int]] | None
    ring: tuple[int, ...]
    taps: Ints
    steps: list[tuple[int, int, int]]


def plan_window(entry: LaneEntry, window: Window) -> PlannedRows:
    """What a lane's rows need; changes nothing."""
    count, length, first = len(window), entry.length, entry.own.start
    ring = entry.free_rows(count)
    steps = [(row - first, -1, 0) for row in entry.replay]
    if steps:
        steps[-1] = (steps[-1][0], -1, COMMIT)
    if window.is_chain:
        inputs = np.array((*entry.last, *range(-2, -2 - count, -1)), np.int32)
        positions = tuple(range(length, length + count))
        steps += _chain_steps(ring, first)
        return PlannedRows(entry, window.tokens, positions, None, ring, inputs[_INPUTS[:count]], steps)
    # A row's way and the inputs before its own are its parent's, and one more.
    ways, taps = [[length]], [tuple(entry.last)]
    for row, parent in enumerate(window.parents[1:], start=1):
        ways.append([*ways[parent], length + row])
        taps.append((*taps[parent][1:], -(2 + parent)))
    positions = tuple([length + len(way) - 1 for way in ways])
    steps += [(ring[row] - first, row if new else -1, flags) for row, new, flags in tree_steps(window.parents)]
    return PlannedRows(entry, window.tokens, positions, ways, ring, np.array(taps, np.int32), steps)


def _chain_steps(ring: Sequence[int], first: int) -> list[tuple[int, int, int]]:
    """Steps of a chain; the state behind its last row is left aside."""
    steps = [(row - first, at, 0) for at, row in enumerate(ring)]
    steps[-1] = (steps[-1][0], steps[-1][1], SAVE)
    return steps


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
    """Write a launch's integers into `fields`, named and shaped as a control block's, for `rows` rows in all.

    `lines` [7, R] are the fields of LINES. Few calls of many numbers: each call costs what hundreds of numbers do.
    """
    at = 0
    lines: tuple[list[int], ...] = ([], [], [], [], [], [], [])
    ids, positions, lanes, lengths, committed, slots, rings = lines
    path, taps, schedule = fields["path"], fields["taps"], fields["schedule"]
    counts, places = [0] * len(schedule), fields["places"]
    for window in planned:
        entry, count, length = window.entry, len(window.tokens), window.entry.length
        part = slice(at, at + count)
        ids += window.tokens
        positions += window.positions
        lanes += [entry.slot] * count
        lengths += [position + 1 for position in window.positions]
        committed += [length] * count
        slots += range(length, length + count)
        rings += window.ring
        if window.ways is None:
            path[part] = length + _ORDER[: path.shape[1]]
        else:
            deepest = max(map(len, window.ways))
            path[part] = 0
            path[part, :deepest] = [way + [0] * (deepest - len(way)) for way in window.ways]
        taps[part] = np.where(window.taps < -1, window.taps - at, window.taps) if at else window.taps
        steps = np.array(window.steps, np.int32)
        if at:
            steps[:, 1] = np.where(steps[:, 1] >= 0, steps[:, 1] + at, -1)
        schedule[entry.slot, : len(steps)] = steps
        counts[entry.slot] = len(steps)
        places[entry.slot] = (entry.committed, entry.spare)
        at += count
    if at < rows:
        for line, number in zip(lines, (0, 0, nobody.slot, 1, 0, 0, nobody.own.start), strict=True):
            line += [number] * (rows - at)
        path[at:rows] = 0
        taps[at:rows] = -1
    fields["lines"][:] = lines
    fields["counts"][:] = counts
