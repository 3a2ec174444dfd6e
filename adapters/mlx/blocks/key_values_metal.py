"""Keys and values of an attention layer for our Metal kernel: by position, a ring where the layer has a window.

A window's rows are handed to the kernel beside the cache and written into it when they are kept, so that rejected rows
never touch it: a ring of exactly one window is enough.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tensorfold.adapters.mlx.blocks.key_values_library import array_bytes, array_of
from tensorfold.adapters.mlx.layouts import Layout, chain_layout
from tensorfold.adapters.mlx.states import Path
from tensorfold.adapters.mlx.trust import close, same_bits, samples
from tensorfold.domain.families.ops import Attention
from tensorfold.domain.families.state import ITEM_BYTES
from tensorfold.kernels.metal.attention import attend
from tensorfold.kernels.metal.windows import window

_STEP = 256
_NAMES = {mx.float32: "float32", mx.bfloat16: "bfloat16", mx.float16: "float16"}


class MetalKeyValues:
    """State of one layer in one lane: arrays [slots, G, D] of `dtype`, position p in slot p % slots."""

    def __init__(self, op: Attention, capacity: int, dtype: mx.Dtype) -> None:
        self._op, self._capacity, self._dtype = op, capacity, dtype
        self.length = 0
        slots = max(op.window, 8) if op.window else min(_STEP, max(capacity, 8))
        self._keys = mx.zeros((slots, op.kv_heads, op.head_dim), dtype)
        self._values = mx.zeros((slots, op.kv_heads, op.head_dim), dtype)
        self._window: tuple[mx.array, mx.array] | None = None

    def attend(self, queries: mx.array, keys: mx.array, values: mx.array, layout: Layout) -> mx.array:
        """Results [R, H * D] of the window's rows; see `KeyValues.attend`."""
        op, rows = self._op, window(layout.parents)
        keys, values = (mx.contiguous(part.astype(self._dtype)) for part in (keys, values))
        self._window = (keys, values)
        made = attend(
            mx.contiguous(queries), self._keys, self._values, keys, values, rows, self.length, op.scale, op.window
        )
        return made.reshape(len(layout), -1)

    def keep(self, path: Path) -> None:
        """Commit these rows of the window in this order."""
        assert self._window is not None
        if path:
            whole = path == tuple(range(self._window[0].shape[0]))
            index = None if whole else mx.array(path)
            keys, values = (part if index is None else part[index] for part in self._window)
            self._write(keys, values)
        self.length += len(path)
        self._window = None

    def _write(self, keys: mx.array, values: mx.array) -> None:
        """Put rows behind the committed ones, the newest of them where they are more than a ring holds."""
        count, slots = keys.shape[0], self._keys.shape[0]
        first = self.length
        if self._op.window:
            skipped = max(0, count - slots)
            keys, values, first, count = keys[skipped:], values[skipped:], first + skipped, count - skipped
        else:
            self._make_room(first + count)
            slots = self._keys.shape[0]
        at, done = first % slots, 0
        while done < count:
            part = min(count - done, slots - at)
            start = mx.array([at])
            self._keys = mx.slice_update(self._keys, keys[done : done + part], start, axes=[0])
            self._values = mx.slice_update(self._values, values[done : done + part], start, axes=[0])
            at, done = 0, done + part

    def _make_room(self, need: int) -> None:
        slots = self._keys.shape[0]
        if need <= slots:
            return
        size = -(-max(need, min(2 * slots, self._capacity)) // _STEP) * _STEP
        room = mx.zeros((size - slots, *self._keys.shape[1:]), self._dtype)
        self._keys, self._values = (mx.concatenate([part, room], axis=0) for part in (self._keys, self._values))

    def discard(self) -> None:
        """Forget the window."""
        self._window = None

    def fork(self) -> MetalKeyValues:
        """An independent copy of the committed rows; arrays are values, shared until one side writes."""
        twin = MetalKeyValues(self._op, 8, self._dtype)
        twin._capacity, twin.length = self._capacity, self.length
        twin._keys, twin._values = self._keys, self._values
        return twin

    def export(self) -> tuple[bytes, ...]:
        """Keys and values of the committed rows within the window, each [tokens, G, D]."""
        held, slots = self._held(self.length), self._keys.shape[0]
        places = mx.array(np.arange(self.length - held, self.length) % slots)
        return tuple(array_bytes(part[places]) for part in (self._keys, self._values))

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become a layer that absorbed `length` tokens. Raises ValueError on a wrong size."""
        keys, values = parts
        held = self._held(length)
        shape = (held, self._op.kv_heads, self._op.head_dim)
        size = int(np.prod(shape)) * ITEM_BYTES[_NAMES[self._dtype]]
        if len(keys) != size or len(values) != size:
            raise ValueError(f"a layer's buffers of {len(keys)} and {len(values)} bytes; {size} are {held} tokens")
        if not self._op.window:
            self._make_room(length)
        self.length = length - held
        if held:
            self._write(array_of(keys, shape, self._dtype), array_of(values, shape, self._dtype))
        self.length = length

    def _held(self, length: int) -> int:
        return min(length, self._op.window) if self._op.window else length

    def held_bytes(self) -> int:
        """Bytes of both buffers."""
        return int(self._keys.nbytes + self._values.nbytes)

    def buffers(self) -> list[mx.array]:
        """Both buffers."""
        return [self._keys, self._values]


def exact_reads(op: Attention, dtype: mx.Dtype) -> bool:
    """Whether rows over short and long caches have the bits they have alone, and come close to MLX's attention."""
    return all(_reads_hold(op, dtype, held) for held in (0, 70, 530))


def _reads_hold(op: Attention, dtype: mx.Dtype, held: int) -> bool:
    keys, values = (samples(held + 3, op.kv_heads, op.head_dim, dtype=dtype, seed=seed) for seed in (2, 3))
    queries = samples(3, op.heads, op.head_dim, dtype=dtype, seed=4)
    state = MetalKeyValues(op, held + 8, dtype)
    if held:
        state.attend(mx.zeros((held, op.heads, op.head_dim), dtype), keys[:held], values[:held], chain_layout(0, held))
        state.keep(tuple(range(held)))
    together = state.fork().attend(queries, keys[held:], values[held:], chain_layout(held, 3))
    serial, rows = state.fork(), []
    for row in range(3):
        at = slice(row, row + 1)
        own = slice(held + row, held + row + 1)
        rows.append(serial.attend(queries[at], keys[own], values[own], chain_layout(held + row, 1)))
        serial.keep((0,))
    wanted = _by_mlx(op, queries, keys, values, held)
    return same_bits(together, mx.concatenate(rows, axis=0)) and close(together, wanted)


def _by_mlx(op: Attention, queries: mx.array, keys: mx.array, values: mx.array, held: int) -> mx.array:
    positions, at = np.arange(held, held + 3)[:, None], np.arange(held + 3)[None]
    seen = (at <= positions) & ((at > positions - op.window) if op.window else True)
    made = mx.fast.scaled_dot_product_attention(
        queries.swapaxes(0, 1)[None],
        keys.swapaxes(0, 1)[None],
        values.swapaxes(0, 1)[None],
        scale=op.scale,
        mask=mx.array(seen),
    )
    return made[0].swapaxes(0, 1).reshape(3, -1)
