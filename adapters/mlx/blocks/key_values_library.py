"""Keys and values of an attention layer in MLX arrays, appended in place behind the committed rows.

Arrays are values: a fork shares them until one side writes. What a window wrote past `length` is overwritten or cut
off before it can be read. Rows of a tree read their own branch as if it were contiguous.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.adapters.mlx.layouts import Branch, Layout
from tensorfold.domain.families.ops import Attention

_STEP = 256
_ITEM = {mx.float32: 4, mx.bfloat16: 2, mx.float16: 2}


class LibraryKeyValues:
    """State of one layer in one lane, in arrays [G, slots, D] of `dtype`."""

    def __init__(self, op: Attention, capacity: int, dtype: mx.Dtype) -> None:
        self._op, self._capacity, self._dtype = op, capacity, dtype
        self.length = 0
        self._first = 0
        slots = min(_STEP, max(capacity, 1))
        self._keys = mx.zeros((op.kv_heads, slots, op.head_dim), dtype)
        self._values = mx.zeros((op.kv_heads, slots, op.head_dim), dtype)
        self._window: tuple[mx.array, mx.array] | None = None
        self._written = False

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, layout: Layout) -> mx.array:
        """Results [R, H * D] of the window's rows; see `KeyValues.attend`."""
        self._window = (keys, values)
        if layout.is_chain:
            self._write(keys, values)
            start, stop = self._lowest() - self._first, self.length + len(layout) - self._first
            return self._read(queries, self._keys[:, start:stop], self._values[:, start:stop], layout.positions)
        made: dict[int, mx.array] = {}
        for branch in layout.branches:
            rows = mx.array(branch.rows)
            seen_keys, seen_values = self._along(branch)
            part = self._read(queries[rows], seen_keys, seen_values, layout.positions[list(branch.rows)])
            made.update(zip(branch.rows, mx.split(part, len(branch.rows), axis=0), strict=True))
        return mx.concatenate([made[row] for row in range(len(layout))], axis=0)

    def _read(
        self, queries: mx.array, keys: mx.array, values: mx.array, positions: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> mx.array:
        held = self._lowest() + np.arange(keys.shape[1])
        seen = held[None] <= positions[:, None]
        if self._op.window:
            seen &= held[None] > positions[:, None] - self._op.window
        made = mx.fast.scaled_dot_product_attention(
            queries.swapaxes(0, 1)[None], keys[None], values[None], scale=self._op.scale, mask=mx.array(seen)
        )
        return made[0].swapaxes(0, 1).reshape(queries.shape[0], -1)

    def _along(self, branch: Branch) -> tuple[mx.array, mx.array]:
        """Committed rows, then the branch's own."""
        assert self._window is not None
        start, stop, path = self._lowest() - self._first, self.length - self._first, mx.array(branch.path)
        keys, values = (
            mx.concatenate([buffer[:, start:stop], rows[path].swapaxes(0, 1)], axis=1)
            for buffer, rows in zip((self._keys, self._values), self._window, strict=True)
        )
        return keys, values

    def _lowest(self) -> int:
        """The position of the first key that is read: by the lane's length alone, whatever its buffers still hold.

        In whole steps, so that a key keeps its place in a kernel's pattern of threads.
        """
        window = self._op.window
        return max(0, self.length - window + 1) // _STEP * _STEP if window else 0

    def _write(self, keys: mx.array, values: mx.array) -> None:
        count = keys.shape[0]
        self._make_room(count)
        start = mx.array([self.length - self._first])
        self._keys = mx.slice_update(self._keys, keys.swapaxes(0, 1).astype(self._dtype), start, axes=[1])
        self._values = mx.slice_update(self._values, values.swapaxes(0, 1).astype(self._dtype), start, axes=[1])
        self._written = True

    def _make_room(self, count: int) -> None:
        window, slots = self._op.window, self._keys.shape[1]
        need = self.length + count - self._first
        if need <= slots:
            return
        drop = max(0, self._lowest() - self._first)
        held = self.length - self._first - drop
        size = -(-(need - drop) // _STEP) * _STEP
        if not window:
            size = max(size, min(2 * slots, self._capacity))
        room = mx.zeros((self._op.kv_heads, size - held, self._op.head_dim), self._dtype)
        self._keys = mx.concatenate([self._keys[:, drop : drop + held], room], axis=1)
        self._values = mx.concatenate([self._values[:, drop : drop + held], room], axis=1)
        self._first += drop

    def keep(self, path: tuple[int, ...]) -> None:
        """Commit these rows of the window in this order."""
        assert self._window is not None
        if path and not (self._written and path == tuple(range(len(path)))):
            rows = mx.array(path)
            self._write(self._window[0][rows], self._window[1][rows])
        self.length += len(path)
        self._window, self._written = None, False

    def discard(self) -> None:
        """Forget the window."""
        self._window, self._written = None, False

    def fork(self) -> LibraryKeyValues:
        """An independent copy of the committed rows."""
        twin = LibraryKeyValues(self._op, 1, self._dtype)
        twin._capacity, twin.length, twin._first = self._capacity, self.length, self._first
        twin._keys, twin._values = self._keys, self._values
        return twin

    def export(self) -> tuple[bytes, ...]:
        """Keys and values of the committed rows within the window, each [tokens, G, D]."""
        held = self._held(self.length)
        at = self.length - self._first
        keys, values = (array_bytes(buffer[:, at - held : at].swapaxes(0, 1)) for buffer in (self._keys, self._values))
        return keys, values

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become a layer that absorbed `length` tokens. Raises ValueError on a wrong size."""
        keys, values = parts
        held = self._held(length)
        size = held * self._op.kv_heads * self._op.head_dim * _ITEM[self._dtype]
        if len(keys) != size or len(values) != size:
            raise ValueError(f"a layer's buffers of {len(keys)} and {len(values)} bytes; {size} are {held} tokens")
        shape = (held, self._op.kv_heads, self._op.head_dim)
        self.length = length - held
        self._first = self.length // _STEP * _STEP
        ahead = (self._op.kv_heads, self.length - self._first, self._op.head_dim)
        self._keys, self._values = mx.zeros(ahead, self._dtype), mx.zeros(ahead, self._dtype)
        self._write(array_of(keys, shape, self._dtype), array_of(values, shape, self._dtype))
        self.length, self._written = length, False

    def _held(self, length: int) -> int:
        return min(length, self._op.window) if self._op.window else length

    def held_bytes(self) -> int:
        """Bytes of both buffers."""
        return int(self._keys.nbytes + self._values.nbytes)

    def buffers(self) -> list[mx.array]:
        """What a prefill must evaluate, so that graphs do not grow."""
        return [self._keys, self._values]


def array_bytes(rows: mx.array) -> bytes:
    """The values' bytes in row order; bfloat16 has no host form, so its bits travel as uint16."""
    plain = mx.contiguous(rows)
    return np.array(plain.view(mx.uint16) if rows.dtype == mx.bfloat16 else plain).tobytes()


def array_of(data: bytes, shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """The inverse of `array_bytes`."""
    if dtype == mx.bfloat16:
        return mx.array(np.frombuffer(data, np.uint16).reshape(shape)).view(mx.bfloat16)
    return mx.array(np.frombuffer(data, np.float32 if dtype == mx.float32 else np.float16).reshape(shape))
