"""Rows of a hashed n-gram table, gated by the residual's streams, with a dilated convolution behind them.

Which rows they are is exact int64 arithmetic on the host, from the lane's last tokens and the window's; the rows are
read there too, and the table is never held. A segment starts behind each boundary token, and no n-gram reaches over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.gated_delta import conv_taps
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import NormBlock
from tensorfold.adapters.mlx.blocks.recurrence import StatePair
from tensorfold.adapters.mlx.blocks.short_conv import ConvState
from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.states import Path
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import HashedNgram

A = TypeVar("A")
_LEAST_GATE = 1e-6


class HashedNgramBlock(Generic[A]):
    """Table rows make a key for every stream and one value; how close a key is to its stream gates the value."""

    def __init__(self, assembly: Assembly[A], plan: HashedNgram, path: str) -> None:
        ops, weights = assembly.ops, assembly.weights
        self._ops, self._plan = ops, plan
        check_constants(weights, plan, path)
        self._table = weights.table(f"{path}.table")
        if sum(plan.table_sizes) > self._table.rows:
            raise RefusedError(f"{path}.table has {self._table.rows:,} rows; its heads need {sum(plan.table_sizes):,}.")
        self._project = LinearBlock(assembly, (f"{path}.key", f"{path}.value"))
        self._key_norm, self._query_norm, self._conv_norm = (
            NormBlock(assembly, plan.norm, f"{path}.{name}_norm") for name in ("key", "query", "conv")
        )
        self._taps = ops.float32(conv_taps(weights.floats(f"{path}.conv")))
        bias = weights.bias(f"{path}.conv") if plan.conv.bias else None
        self._bias = None if bias is None else ops.float32(bias)
        self._place = assembly.place(self, plan, path)

    def state(self, capacity: int) -> StatePair[A]:
        """The lane's last tokens and the convolution's tail."""
        plan = self._plan
        tokens: TokenTail[A] = TokenTail(plan.ngram - 1, plan.boundary_token)
        return StatePair(tokens, ConvState(self._ops, plan.conv, plan.conv.channels))

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """What is added to every stream of every row [R, streams * D]."""
        ops = self._ops
        gated = self._gated(rows, self._looked_up(context))
        normed = self._conv_norm(gated)
        made = []
        for segment in context.segments:
            _, conv = segment.states[self._place].parts
            own = ops.span(normed, segment.start, segment.stop)
            made.append(conv.run(own, self._taps, self._bias, segment.layout))
        total: Any = ops.wide(gated)
        return ops.narrow(total + ops.wide(ops.join(made)))

    def _looked_up(self, context: RowContext[A]) -> A:
        """The table's rows [R, heads * width] for every row."""
        seen = []
        for segment in context.segments:
            tokens, _ = segment.states[self._place].parts
            seen.append(tokens.run(context.ids[segment.start : segment.stop], segment.layout))
        found = self._table(table_rows(self._plan, np.concatenate(seen)))
        return self._ops.narrow(self._ops.float32(found.reshape(len(found), -1)))

    def _gated(self, rows: A, found: A) -> A:
        """For each stream the value times sigmoid of the signed root of key . query / sqrt(D)."""
        ops, streams = self._ops, self._plan.streams
        key, value = self._project.split(found)
        keys, queries = (ops.heads(ops.wide(part), streams) for part in (self._key_norm(key), self._query_norm(rows)))
        wide: Any = ops.wide(value)
        products: Any = keys * queries  # type: ignore[operator]
        closeness = products.sum(axis=-1) * products.shape[-1] ** -0.5
        xp = ops.xp
        rooted = xp.sign(closeness) * xp.sqrt(xp.maximum(xp.abs(closeness), _LEAST_GATE))
        gate: Any = ops.sigmoid(rooted)
        made = gate[:, :, None] * wide[:, None, :]
        return ops.narrow(made.reshape(made.shape[0], -1))


class TokenTail(Generic[A]):
    """The last `count` tokens of a lane, on the host; before the first token stand boundary tokens."""

    def __init__(self, count: int, boundary: int) -> None:
        self._count, self._boundary = count, boundary
        self.length = 0
        self._held = np.full(count, boundary, np.int64)
        self._ids = np.empty(0, np.int64)

    def run(self, ids: NDArray[np.int64], layout: Layout) -> NDArray[np.int64]:
        """The tokens [R, count + 1] that each row of a window sees, its own first; past a boundary only boundaries."""
        self._ids = ids
        every = np.concatenate([self._held, ids])
        if layout.is_chain:
            place = self._count + np.arange(len(ids))[:, None] - np.arange(self._count + 1)
        else:
            paths = [layout.past(row, self._count + 1)[::-1] for row in range(len(layout))]
            place = self._count + np.asarray(paths)
        seen: NDArray[np.int64] = every[place]
        for back in range(2, self._count + 1):
            seen[seen[:, back - 1] == self._boundary, back] = self._boundary
        return seen

    def keep(self, path: Path) -> None:
        """Commit these rows of the window."""
        self._held = np.concatenate([self._held, self._ids[list(path)]])[-self._count :]
        self.length += len(path)
        self.discard()

    def discard(self) -> None:
        """Forget the window."""
        self._ids = np.empty(0, np.int64)

    def fork(self) -> TokenTail[A]:
        """A second lane's; what is committed is never written in place."""
        twin: TokenTail[A] = TokenTail(self._count, self._boundary)
        twin.length, twin._held = self.length, self._held
        return twin

    def export(self) -> tuple[bytes, ...]:
        """The tokens, oldest first."""
        return (self._held.tobytes(),)

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the tail of `length` tokens. Raises ValueError on a wrong size."""
        (data,) = parts
        self._held = np.frombuffer(data, np.int64).reshape(self._count).copy()
        self.length = length

    def held_bytes(self) -> int:
        """Bytes of the tokens."""
        return int(self._held.nbytes)

    def buffers(self) -> Sequence[A]:
        """Nothing: tokens are on the host."""
        return ()


def table_rows(plan: HashedNgram, seen: NDArray[np.int64]) -> NDArray[np.int64]:
    """Row numbers [R, heads] of tokens [R, ngram], newest first: wrapped products, xored, each head by its own size."""
    mixed = seen * np.asarray(plan.multipliers, np.int64)
    sizes = np.asarray(plan.table_sizes, np.int64).reshape(plan.ngram - 1, plan.heads_per_ngram)
    offsets = _offsets(plan).reshape(sizes.shape)
    made = []
    total = mixed[:, 0]
    for length in range(2, plan.ngram + 1):
        total = total ^ mixed[:, length - 1]
        made.append(np.remainder(total[:, None], sizes[length - 2]) + offsets[length - 2])
    return np.concatenate(made, axis=1)


def check_constants(weights: WeightReader, plan: HashedNgram, path: str) -> None:
    """Hold a checkpoint's own constants, where it has them, against those of its config. Raises RefusedError."""
    expected = {"multipliers": plan.multipliers, "table_sizes": plan.table_sizes, "offsets": _offsets(plan).tolist()}
    for name, values in expected.items():
        if weights.has(f"{path}.{name}") and weights.integers(f"{path}.{name}").tolist() != list(values):
            raise RefusedError(
                f"The checkpoint's {path}.{name} are not those that config.json's seed and sizes give; its "
                "n-gram table would be read at wrong rows. Use a complete copy of one publication."
            )


def _offsets(plan: HashedNgram) -> NDArray[np.int64]:
    """The first row of every head."""
    return np.concatenate([[0], np.cumsum(plan.table_sizes)[:-1]]).astype(np.int64)
