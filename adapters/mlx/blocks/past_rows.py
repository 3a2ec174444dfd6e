"""Rows of one kind that a lane caches, one for every token or for every few, and those of a window until they are kept.

Appended in place behind the committed ones. What a window wrote past them is overwritten or cut off before it can be
read. Rows of a tree read their own branch as if it were contiguous.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.states import Path
from tensorfold.domain.families.state import ITEM_BYTES

A = TypeVar("A")
_STEP = 64
_FIRST = 256


class PastRows(Generic[A]):
    """Rows [groups, rows, width] of a lane, one for every `per` of at most `capacity` tokens, in the rows' dtype."""

    def __init__(self, ops: RowOps[A], shape: tuple[int, int], capacity: int, per: int = 1) -> None:
        self._ops, self._shape, self._capacity, self._per = ops, shape, capacity, per
        self.length = 0
        self._buffer = self._room(min(_FIRST, self._most()))
        self._window: A | None = None
        self._places: Mapping[int, int] | None = None
        self._written = False

    @property
    def held(self) -> int:
        """Committed rows."""
        return self.length // self._per

    def put(self, rows: A, layout: Layout, places: Mapping[int, int] | None = None) -> None:
        """A window's rows [n, groups, width], provisional; `places` tells which row of the window made which of them.

        Without `places` every row made one.
        """
        self._window, self._places = rows, places
        if layout.is_chain:
            self._write(rows)
            self._written = True

    def along(self, path: Path) -> list[A]:
        """Committed rows and those of a path of the window, as parts [groups, n, width] to be read in this order."""
        own, buffer = self._own(path), self._view()
        if self._written:
            return [buffer[:, : self.held + len(own)]]
        if not own:
            return [buffer[:, : self.held]]
        mine: Any = self._ops.take(self._seen(), np.asarray(own))
        return [buffer[:, : self.held], mine.swapaxes(0, 1)]

    def reach(self, index: NDArray[np.int64]) -> A:
        """Rows [*index.shape, groups, width] of the window; negative ones count back from the last committed."""
        back = max(0, -int(index.min()))
        before: A = self._view()[:, self.held - back : self.held].swapaxes(0, 1)
        return self._ops.take(self._ops.join([before, self._seen()]), index + back)

    def keep(self, path: Path) -> None:
        """Commit the rows that these rows of the window made, in this order."""
        own = self._own(path)
        if own and not (self._written and own == list(range(len(own)))):
            self._write(self._ops.take(self._seen(), np.asarray(own)))
        self.length += len(path)
        self.discard()

    def discard(self) -> None:
        """Forget the window."""
        self._window, self._places, self._written = None, None, False

    def fork(self) -> PastRows[A]:
        """An independent copy of the committed rows."""
        twin: PastRows[A] = PastRows(self._ops, self._shape, 1, self._per)
        twin._capacity, twin.length, twin._buffer = self._capacity, self.length, self._ops.twin(self._buffer)
        return twin

    def export(self) -> tuple[bytes, ...]:
        """The committed rows, [rows, groups, width]."""
        return (self._ops.pack(self._view()[:, : self.held].swapaxes(0, 1)),)

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the rows of `length` tokens. Raises ValueError on a wrong size."""
        (data,) = parts
        count = length // self._per
        size = count * math.prod(self._shape) * ITEM_BYTES[self._ops.dtype]
        if len(data) != size:
            raise ValueError(f"a layer's buffer of {len(data)} bytes; {size} are {count} rows")
        self.discard()
        self.length = 0
        if count:
            self._write(self._ops.unpack(data, (count, *self._shape), self._ops.dtype))
        self.length = length

    def held_bytes(self) -> int:
        """Bytes of the buffer."""
        return int(self._view().nbytes)

    def buffers(self) -> Sequence[A]:
        """The buffer."""
        return (self._buffer,)

    def _own(self, path: Path) -> list[int]:
        """Places among the window's rows of those that a path made."""
        if self._places is None:
            return list(path)
        return [self._places[row] for row in path if row in self._places]

    def _seen(self) -> A:
        assert self._window is not None
        return self._window

    def _view(self) -> Any:
        return self._buffer

    def _write(self, rows: Any) -> None:
        """Put rows behind the committed ones."""
        if rows.shape[0] == 0:
            return
        need, slots = self.held + rows.shape[0], self._view().shape[1]
        if need > slots:
            size = _rounded(max(need, min(2 * slots, self._most())))
            self._buffer = self._ops.xp.concatenate(
                [self._view()[:, : self.held], self._room(size - self.held)], axis=1
            )
        self._buffer = self._ops.put(self._buffer, rows, self.held)

    def _room(self, slots: int) -> A:
        groups, width = self._shape
        return self._ops.constant(np.zeros((groups, slots, width), np.float32))

    def _most(self) -> int:
        return _rounded(max(1, self._capacity // self._per))


def _rounded(rows: int) -> int:
    return -(-rows // _STEP) * _STEP
