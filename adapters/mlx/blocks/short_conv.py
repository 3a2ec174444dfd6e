"""Depthwise causal convolution over the rows of a lane, with the rows before a window held as its tail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np

from tensorfold.adapters.mlx.blocks.gates import activated
from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.states import Path
from tensorfold.domain.families.ops import ShortConv

A = TypeVar("A")
_FEW = 32
"""Rows that a tail may keep alive by being a view of them; behind more, as a prompt has, it is copied."""


class ConvState(Generic[A]):
    """The last `past` rows [past, C] of a lane, and a window's behind them until they are kept.

    `past` is (kernel - 1) * dilation; before the first token rows are zero.
    """

    def __init__(self, ops: RowOps[A], plan: ShortConv, channels: int) -> None:
        self._ops, self._plan, self._channels = ops, plan, channels
        self.past = (plan.kernel - 1) * plan.dilation
        self.length = 0
        self._tail: A = ops.constant(np.zeros((self.past, channels), np.float32))
        self._seen: A | None = None
        self._layout: Layout | None = None

    def run(self, rows: A, weight: A, bias: A | None, layout: Layout) -> A:
        """The convolution and its activation at every row of a window [R, C]; `weight` is [taps, C]."""
        plan, ops = self._plan, self._ops
        self._seen, self._layout = ops.join([self._tail, rows]), layout
        seen: Any = ops.wide(self._seen)
        total: Any = None
        for tap in range(plan.kernel):
            back = (plan.kernel - 1 - tap) * plan.dilation
            made = self._at(seen, back, layout) * weight[tap]  # type: ignore[index]
            total = made if total is None else total + made
        return ops.narrow(activated(ops, total if bias is None else total + bias, plan.activation))

    def _at(self, seen: Any, back: int, layout: Layout) -> Any:
        """The row that stands `back` rows before each row of the window, on its own path."""
        if layout.is_chain:
            return seen[self.past - back : self.past - back + len(layout)]
        index = [layout.past(row, back + 1)[0] for row in range(len(layout))]
        return self._ops.take(seen, np.asarray(index) + self.past)

    def keep(self, path: Path) -> None:
        """Commit these rows of the window."""
        assert self._seen is not None
        seen: Any = self._seen
        if path == tuple(range(len(path))) and seen.shape[0] <= self.past + _FEW:
            self._tail = seen[len(path) : len(path) + self.past]
        else:
            rows = [*range(-self.past, 0), *path][len(path) :]
            self._tail = self._ops.take(seen, np.asarray(rows, np.int64) + self.past)
        self.length += len(path)
        self.discard()

    def discard(self) -> None:
        """Forget the window."""
        self._seen, self._layout = None, None

    def fork(self) -> Self:
        """A second lane's state; what is committed is never written in place."""
        twin = type(self)(self._ops, self._plan, self._channels)
        twin.length, twin._tail = self.length, self._tail
        return twin

    def export(self) -> tuple[bytes, ...]:
        """The tail."""
        return (self._ops.pack(self._tail),)

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens. Raises ValueError on a wrong size."""
        (tail,) = parts
        self._tail = self._ops.unpack(tail, (self.past, self._channels), self._ops.dtype)
        self.length = length

    def held_bytes(self) -> int:
        """Bytes of the tail."""
        return int(self._tail.nbytes)  # type: ignore[attr-defined]

    def buffers(self) -> Sequence[A]:
        """The tail."""
        return (self._tail,)
