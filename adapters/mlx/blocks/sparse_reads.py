"""Attention of a lane's rows over what it caches, along each branch of the window, rows that choose keys apart.

Which form a row takes hangs on its own position alone, never on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np

from tensorfold.adapters.mlx.blocks.indexer import Choice
from tensorfold.adapters.mlx.blocks.past_rows import PastRows
from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.reads import Reads
from tensorfold.adapters.mlx.rows import RowOps

A = TypeVar("A")


def read_lane(
    ops: RowOps[A],
    queries: A,
    past: tuple[PastRows[A], PastRows[A]],
    layout: Layout,
    scale: float,
    choice: Choice[A] | None,
) -> A:
    """Results [R, H, D] of a window's `queries` over the keys and values in `past`, which hold its rows already."""
    made: list[A] = []
    order: list[int] = []
    for branch in layout.branches:
        keys = past[0].along(branch.path)
        values = keys if past[1] is past[0] else past[1].along(branch.path)
        for rows, chooses in _parted(branch.rows, layout, choice):
            reads: Reads[A] = Reads(layout.positions[list(rows)], scale)
            if chooses and choice is not None:
                reads = Reads(reads.positions, scale, choice.ratio, choice.count, choice.blocks(rows, branch.path))
            asking = queries if len(rows) == len(layout) else ops.pick(queries, rows)
            made.append(ops.read(asking, keys, values, reads))
            order += rows
    joined = ops.join(made)
    return joined if order == sorted(order) else ops.take(joined, np.argsort(order))


def _parted(rows: Sequence[int], layout: Layout, choice: Choice[A] | None) -> Iterator[tuple[Sequence[int], bool]]:
    """Rows to which all complete blocks fit the budget, then those that choose."""
    if choice is None:
        yield rows, False
        return
    sparse = {row for row in rows if (int(layout.positions[row]) + 1) // choice.ratio > choice.count}
    for chooses in (False, True):
        found = [row for row in rows if (row in sparse) == chooses]
        if found:
            yield found, chooses
