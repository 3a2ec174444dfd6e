"""Keys and values that a block of drafts reads of the kept tokens: the newest `window` of them, oldest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.domain.families.ops import Attention

A = TypeVar("A")


class ContextKeys(Generic[A]):
    """Of one layer in one lane: arrays [tokens, G, D]. Nothing is written in place, so a copy is free."""

    def __init__(self, ops: RowOps[A], plan: Attention, window: int) -> None:
        self._ops, self._plan, self._window = ops, plan, window
        self.length = 0
        empty = ops.constant(np.zeros((0, plan.kv_heads, plan.head_dim), np.float32))
        self.keys: A = empty
        self.values: A = empty

    @property
    def held(self) -> int:
        """Tokens whose keys are still here."""
        return min(self.length, self._window)

    def append(self, keys: A, values: A) -> None:
        """Enter the keys and values [n, G, D] of n more tokens."""
        count: int = keys.shape[0]  # type: ignore[attr-defined]
        self.keys, self.values = self._newest(self.keys, keys), self._newest(self.values, values)
        self.length += count

    def _newest(self, held: Any, more: Any) -> A:
        joined: Any = self._ops.join([held, more])
        rows, first = joined.shape[0], max(0, joined.shape[0] - self._window)
        # A view keeps alive what it leaves out, which is little but behind a long prompt.
        kept: A = joined[first:] if first <= self._window else self._ops.take(joined, np.arange(first, rows))
        return kept

    def fork(self) -> ContextKeys[A]:
        """A copy."""
        twin = ContextKeys(self._ops, self._plan, self._window)
        twin.length, twin.keys, twin.values = self.length, self.keys, self.values
        return twin

    def export(self) -> tuple[bytes, ...]:
        """Keys and values, each [tokens, G, D]."""
        return self._ops.pack(self.keys), self._ops.pack(self.values)

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens. Raises ValueError on a wrong size."""
        shape = (min(length, self._window), self._plan.kv_heads, self._plan.head_dim)
        self.keys, self.values = (self._ops.unpack(part, shape, self._ops.dtype) for part in parts)
        self.length = length

    def held_bytes(self) -> int:
        """Bytes of both."""
        return len(self._ops.pack(self.keys)) * 2

    def buffers(self) -> Sequence[A]:
        """Both."""
        return (self.keys, self.values)
