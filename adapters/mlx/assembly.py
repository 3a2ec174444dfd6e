"""What a block is built with, and the places of lane states: one for each op that has any, in the spec's order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.states import LayerState
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.domain.families.ops import Op
from tensorfold.domain.families.state import StateEntry, op_state

A = TypeVar("A")


class Block(Protocol[A]):
    """One op over all rows of a pass."""

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The op's result for `rows`, its input behind the norm; `residual` is that input before it."""
        ...


class Stateful(Protocol):
    """A block whose op holds state in every lane."""

    def state(self, capacity: int) -> LayerState[Any]:
        """Empty state of a lane that will absorb at most `capacity` tokens."""
        ...


@dataclass(slots=True)
class Assembly(Generic[A]):
    """The parts of a model while it is put together. `width` is that of a residual stream, `streams` their number."""

    ops: RowOps[A]
    weights: WeightReader
    width: int
    streams: int = 1
    stateful: list[tuple[Stateful, tuple[StateEntry, ...]]] = field(default_factory=list)

    def place(self, block: Stateful, op: Op, path: str) -> int:
        """Enter a block's state; the place at which a lane's states hold it."""
        entries = tuple(op_state(op, path, self.ops.dtype))
        self.stateful.append((block, entries))
        return len(self.stateful) - 1
