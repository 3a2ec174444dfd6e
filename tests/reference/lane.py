"""Rows of a sequence, or of a tree of sequences, and what every layer remembers of each of them.

A row's past is its own path: nothing another branch did is ever seen. Names of buffers are those of the state spec.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its token, its position, and the rows from the first to itself."""

    token: int
    position: int
    path: tuple[int, ...]

    @property
    def parent(self) -> int:
        """The row before this one, -1 when it is the first."""
        return self.path[-2] if len(self.path) > 1 else -1


@dataclass(slots=True)
class Lane:
    """All rows fed so far, and by buffer path what each row left there."""

    rows: list[Row] = field(default_factory=list)
    left: dict[str, dict[int, Any]] = field(default_factory=dict)

    def add(self, token: int, parent: int | None = None, position: int | None = None) -> int:
        """A row behind `parent` (by default the newest row), one position later unless `position` is given."""
        number = len(self.rows)
        before = number - 1 if parent is None else parent
        path = (*self.rows[before].path, number) if before >= 0 else (number,)
        self.rows.append(Row(token, len(path) - 1 if position is None else position, path))
        return number

    def at(self, number: int) -> RowContext:
        """A row as a layer sees it."""
        return RowContext(self, number)

    def states(self, number: int) -> dict[str, Any]:
        """Every buffer after a row: growing ones along its path, the others as that row left them."""
        path = self.rows[number].path
        made: dict[str, Any] = {}
        for name, left in self.left.items():
            if name.rsplit(".", 1)[1] in ("conv", "recurrent", "tokens"):
                made[name] = left[number]
            else:
                made[name] = np.array([left[row] for row in path if row in left])
        return made


@dataclass(frozen=True, slots=True)
class RowContext:
    """One row's view of a lane: what its path left, and where it leaves its own."""

    lane: Lane
    number: int

    @property
    def row(self) -> Row:
        """The row itself."""
        return self.lane.rows[self.number]

    @property
    def position(self) -> int:
        """The row's position."""
        return self.row.position

    def before(self, path: str, otherwise: Any) -> Any:
        """What the row before this one left in a buffer; `otherwise` for the first row."""
        return self.lane.left[path][self.row.parent] if self.row.parent >= 0 else otherwise

    def leave(self, path: str, value: Any) -> None:
        """Put this row's value into a buffer."""
        self.lane.left.setdefault(path, {})[self.number] = value

    def along(self, path: str) -> Floats:
        """What the rows of the path left in a buffer, in order; rows that left nothing are passed over."""
        left = self.lane.left.get(path, {})
        return np.array([left[row] for row in self.row.path if row in left])
