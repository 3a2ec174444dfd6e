"""A recurrence's state in one lane: float32, never inverted, never rounded; rows that were kept are run again.

A window leaves its inputs here. Keeping all of a chain takes the state behind its last row; keeping less, or a path of
a tree, runs the kept rows once more from the committed state, through the same steps and so to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np

from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.rows import RowOps, Step
from tensorfold.adapters.mlx.states import Path

A = TypeVar("A")


class RecurrentState(Generic[A]):
    """State of `shape` after `length` rows of one recurrence."""

    def __init__(self, ops: RowOps[A], step: Step, shape: tuple[int, ...]) -> None:
        self._ops, self._step, self._shape = ops, step, shape
        self.length = 0
        self._held: A = ops.float32(np.zeros(shape, np.float32))
        self._inputs: tuple[A, ...] = ()
        self._behind: A | None = None
        self._rows = 0

    def run(self, inputs: Sequence[A], layout: Layout) -> A:
        """Outputs of a window's rows, each of whose `inputs` is [R, ...] in float32."""
        self._inputs, self._rows = tuple(inputs), len(layout) if layout.is_chain else 0
        made, self._behind = self._ops.scan(self._step, inputs, self._held, layout.parents)
        return made

    def keep(self, path: Path) -> None:
        """Commit these rows of the window."""
        if path and path == tuple(range(self._rows)):
            assert self._behind is not None
            self._held = self._behind
        elif path:
            rows = np.asarray(path)
            kept = [self._ops.take(part, rows) for part in self._inputs]
            _, self._held = self._ops.scan(self._step, kept, self._held, range(-1, len(path) - 1))
        self.length += len(path)
        self.discard()

    def discard(self) -> None:
        """Forget the window."""
        self._inputs, self._behind, self._rows = (), None, 0

    def fork(self) -> Self:
        """A second lane's state; what is committed is never written in place."""
        twin = type(self)(self._ops, self._step, self._shape)
        twin.length, twin._held = self.length, self._held
        return twin

    def export(self) -> tuple[bytes, ...]:
        """The state."""
        return (self._ops.pack(self._held),)

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens. Raises ValueError on a wrong size."""
        (held,) = parts
        self._held = self._ops.unpack(held, self._shape, "float32")
        self.length = length

    def held_bytes(self) -> int:
        """Bytes of the state."""
        return 4 * math.prod(self._shape)

    def buffers(self) -> Sequence[A]:
        """The state."""
        return (self._held,)


class StatePair(Generic[A]):
    """Several states of one op as one: kept, forgotten, copied and exported together, in order."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts

    @property
    def length(self) -> int:
        """Rows committed."""
        length: int = self.parts[0].length
        return length

    def keep(self, path: Path) -> None:
        """Commit these rows of the window."""
        for part in self.parts:
            part.keep(path)

    def discard(self) -> None:
        """Forget the window."""
        for part in self.parts:
            part.discard()

    def fork(self) -> Self:
        """An independent copy."""
        return type(self)(*(part.fork() for part in self.parts))

    def export(self) -> tuple[bytes, ...]:
        """The buffers of all parts."""
        return tuple(data for part in self.parts for data in part.export())

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Load each part with its own buffers; every part here has one. Raises ValueError on a wrong size."""
        for part, data in zip(self.parts, parts, strict=True):
            part.load((data,), length)

    def held_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(part.held_bytes() for part in self.parts)

    def buffers(self) -> Sequence[A]:
        """The buffers of all parts."""
        return [buffer for part in self.parts for buffer in part.buffers()]
