"""Keys and values of an attention layer in numpy: one buffer by absolute position, read in fixed blocks.

Invariant: past `length` every buffered key and value is zero, so what an abandoned draft wrote can never be read.
With a sliding window whole blocks behind it are dropped, which leaves the cuts between blocks where they were.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.layouts import Branch, Layout
from tensorfold.domain.families.ops import Attention
from tensorfold.kernels.cpu.attention import BLOCK, BlockedAttention, Sight

Rows = NDArray[np.float32]
_FIRST_BLOCKS = 4


class CpuKeyValues:
    """State of one layer in one lane. `capacity` is the most tokens it will absorb."""

    def __init__(self, reader: BlockedAttention, op: Attention, capacity: int) -> None:
        self._reader, self._op, self._capacity = reader, op, capacity
        self.length = 0
        self._first = 0
        """Absolute position of the buffers' first slot, a multiple of BLOCK."""
        blocks = min(_FIRST_BLOCKS, _blocks(capacity))
        self._keys = np.zeros((op.kv_heads, blocks * BLOCK, op.head_dim), np.float32)
        self._values = np.zeros_like(self._keys)
        self._window: tuple[Rows, Rows] | None = None
        self._written = 0

    def attend(self, queries: Rows, keys: Rows, values: Rows, layout: Layout) -> Rows:
        """Results [R, H * D] of the window's rows; see `KeyValues.attend`."""
        op = self._op
        self._window = (keys, values)
        grouped = (queries * np.float32(op.scale)).reshape(len(layout), op.kv_heads, -1, op.head_dim)
        if layout.is_chain:
            self._write(keys, values)
            return self._read(grouped, layout.positions, self._cached(self.length + len(layout)))
        out = np.empty((len(layout), op.heads * op.head_dim), np.float32)
        for branch in layout.branches:
            rows = list(branch.rows)
            out[rows] = self._read(grouped[rows], layout.positions[rows], self._along(branch))
        return out

    def _read(self, grouped: Rows, positions: NDArray[np.int64], blocks: list[tuple[Rows, Rows]]) -> Rows:
        """Attention of queries [R, G, H / G, D] over blocks that end with the queries' own keys."""
        rows, groups, shared, dim = grouped.shape
        queries = np.ascontiguousarray(grouped.transpose(1, 0, 2, 3)).reshape(groups, rows * shared, dim)
        first = self._first + self._unseen() * BLOCK
        made = self._reader(queries, blocks, Sight(np.repeat(positions, shared), first, self._op.window))
        return made.reshape(groups, rows, shared, dim).transpose(1, 0, 2, 3).reshape(rows, -1)

    def _unseen(self) -> int:
        """Leading blocks that no row from `length` on can read."""
        if not self._op.window:
            return 0
        return max(0, (self.length - self._op.window + 1 - self._first) // BLOCK)

    def _cached(self, stop: int) -> list[tuple[Rows, Rows]]:
        """The buffers' blocks up to absolute position `stop`."""
        start, end = self._unseen(), _blocks(stop - self._first)
        if start >= end:
            return []
        return [(_blocked(self._keys)[:, start:end], _blocked(self._values)[:, start:end])]

    def _along(self, branch: Branch) -> list[tuple[Rows, Rows]]:
        """Committed blocks, then blocks made as if the branch's rows stood in the buffers."""
        assert self._window is not None
        edge = self.length - self.length % BLOCK
        size = _blocks(self.length - edge + len(branch.path)) * BLOCK
        path = list(branch.path)
        tails = []
        for buffer, rows in zip((self._keys, self._values), self._window, strict=True):
            tail = np.zeros((self._op.kv_heads, size, self._op.head_dim), np.float32)
            tail[:, : self.length - edge] = buffer[:, edge - self._first : self.length - self._first]
            tail[:, self.length - edge : self.length - edge + len(path)] = rows[path].transpose(1, 0, 2)
            tails.append(_blocked(tail))
        return [*self._cached(edge), (tails[0], tails[1])]

    def _write(self, keys: Rows, values: Rows) -> None:
        """Put rows behind the committed ones, still provisional."""
        count = len(keys)
        self._make_room(count)
        at = self.length - self._first
        self._keys[:, at : at + count] = keys.transpose(1, 0, 2)
        self._values[:, at : at + count] = values.transpose(1, 0, 2)
        self._written = count

    def _make_room(self, count: int) -> None:
        need = self.length + count - self._first
        if need <= self._keys.shape[1]:
            return
        drop = self._unseen() * BLOCK
        need = _blocks(need - drop) * BLOCK
        size = (
            need + BLOCK
            if self._op.window
            else max(need, min(2 * self._keys.shape[1], _blocks(self._capacity) * BLOCK))
        )
        held = self.length - self._first - drop
        for name in ("_keys", "_values"):
            old: Rows = getattr(self, name)
            new = np.zeros((old.shape[0], max(size, old.shape[1] - drop), old.shape[2]), np.float32)
            new[:, :held] = old[:, drop : drop + held]
            setattr(self, name, new)
        self._first += drop

    def keep(self, path: tuple[int, ...]) -> None:
        """Commit these rows of the window in this order."""
        assert self._window is not None
        if self._written and path == tuple(range(len(path))):
            self._clear(len(path), self._written)
        elif path:
            rows = list(path)
            keys, values = self._window
            self._clear(0, self._written)
            self._write(keys[rows], values[rows])
        self.length += len(path)
        self._window, self._written = None, 0

    def discard(self) -> None:
        """Forget the window."""
        self._clear(0, self._written)
        self._window, self._written = None, 0

    def _clear(self, start: int, stop: int) -> None:
        at = self.length - self._first
        self._keys[:, at + start : at + stop] = 0.0
        self._values[:, at + start : at + stop] = 0.0

    def fork(self) -> CpuKeyValues:
        """An independent copy of the committed rows."""
        twin = CpuKeyValues.__new__(CpuKeyValues)
        twin._reader, twin._op, twin._capacity = self._reader, self._op, self._capacity
        twin.length, twin._first = self.length, self._first
        twin._keys, twin._values = self._keys.copy(), self._values.copy()
        twin._window, twin._written = None, 0
        return twin

    def export(self) -> tuple[bytes, ...]:
        """Keys and values of the committed rows within the window, each [tokens, G, D]."""
        held = self._held(self.length)
        at = self.length - self._first
        rows = (buffer[:, at - held : at].transpose(1, 0, 2) for buffer in (self._keys, self._values))
        keys, values = (np.ascontiguousarray(part).tobytes() for part in rows)
        return keys, values

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become a layer that absorbed `length` tokens. Raises ValueError on a wrong size."""
        keys, values = parts
        held = self._held(length)
        shape = (held, self._op.kv_heads, self._op.head_dim)
        size = 4 * held * self._op.kv_heads * self._op.head_dim
        if len(keys) != size or len(values) != size:
            raise ValueError(f"a layer's buffers of {len(keys)} and {len(values)} bytes; {size} are {held} tokens")
        self.length = length
        self._first = (length - held) - (length - held) % BLOCK
        slots = max(1, _blocks(length - self._first)) * BLOCK
        made = []
        for part in (keys, values):
            buffer = np.zeros((self._op.kv_heads, slots, self._op.head_dim), np.float32)
            at = length - self._first
            buffer[:, at - held : at] = np.frombuffer(part, np.float32).reshape(shape).transpose(1, 0, 2)
            made.append(buffer)
        self._keys, self._values = made

    def _held(self, length: int) -> int:
        return min(length, self._op.window) if self._op.window else length

    def held_bytes(self) -> int:
        """Bytes of both buffers."""
        return self._keys.nbytes + self._values.nbytes

    def buffers(self) -> list[Rows]:
        """Nothing is computed late here."""
        return []


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK)


def _blocked(buffer: Rows) -> Rows:
    """[G, T, D] seen as [G, T / BLOCK, BLOCK, D]."""
    return buffer.reshape(buffer.shape[0], -1, BLOCK, buffer.shape[2])
