"""How the rows of a window lie among the keys they read: one branch for each way down its tree.

A chain is one branch. Along a branch rows stand in position order, as if the window were contiguous; every row belongs
to exactly one branch that leads through it. Knows no tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.windows import Window


@dataclass(frozen=True, slots=True)
class Branch:
    """Rows from row 0 to a leaf, and the depths at which this branch computes its row (others do the rest)."""

    path: tuple[int, ...]
    depths: tuple[int, ...]

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows this branch computes."""
        return tuple(self.path[depth] for depth in self.depths)


@dataclass(frozen=True, slots=True)
class Layout:
    """A window's place in its lane: `position` of row 0, `positions` and `parents` of all rows, and its branches."""

    position: int
    positions: NDArray[np.int64]
    parents: tuple[int, ...]
    branches: tuple[Branch, ...]

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def is_chain(self) -> bool:
        """Whether the rows are already contiguous."""
        return len(self.branches) == 1

    def past(self, row: int, count: int) -> list[int]:
        """The `count` rows that lead to `row`, itself the last; -1 is the row before the window, and so on."""
        found: list[int] = []
        while len(found) < count and row >= 0:
            found.append(row)
            row = self.parents[row]
        missing = count - len(found)
        return [*range(-missing, 0), *reversed(found)]


def lay_out(window: Window, position: int) -> Layout:
    """The layout of a window whose row 0 stands at `position`."""
    if window.is_chain:
        return chain_layout(position, len(window))
    depths = window.depths()
    inner = set(window.parents)
    taken: set[int] = set()
    branches = []
    for leaf in (row for row in range(len(window)) if row not in inner):
        path = window.path_to(leaf)
        own = tuple(depth for depth, row in enumerate(path) if row not in taken)
        taken.update(path)
        branches.append(Branch(path, own))
    return Layout(position, position + np.asarray(depths, np.int64), window.parents, tuple(branches))


def chain_layout(position: int, rows: int) -> Layout:
    """The layout of `rows` rows one after another."""
    every = tuple(range(rows))
    return Layout(position, np.arange(position, position + rows), tuple(range(-1, rows - 1)), (Branch(every, every),))
