"""The state a lane holds, listed from a plan: memory arithmetic, snapshots, buffers and rank splits read this one list.

Knows no backend: a ring may hold more rows than its window, and a page may round up; that is the backend's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Literal

from tensorfold.domain.families.ops import (
    Attention,
    BlockIndexer,
    GatedDelta,
    HashedNgram,
    IndexedAttention,
    KimiDelta,
    LatentAttention,
    Mamba2,
    Op,
    ShortConv,
)
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter, Layer, Parallel

StateKind = Literal[
    "keys", "values", "latent", "index_keys", "index_gates", "pooled_keys", "conv", "recurrent", "tokens", "hidden"
]
ITEM_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4, "int64": 8}


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One buffer of a lane.

    `path` is `layers.N.NAME.KIND`, below `mtp.` or `drafter.` for draft heads. `per` 0: one buffer of `shape`
    whatever the length; `per` n: one row of `shape` for every n tokens, of which the newest `window` tokens are kept
    (0: all). `rows` tells how rows are undone: "trim" drops rows past a length, "history" needs the state after each
    row of a window. `split` is the axis of `shape` that two ranks halve, None where each holds all.
    """

    path: str
    kind: StateKind
    dtype: str
    shape: tuple[int, ...]
    per: int = 0
    window: int = 0
    rows: Literal["trim", "history"] = "trim"
    split: int | None = None

    @property
    def row_bytes(self) -> int:
        """Bytes of one `shape`."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def fixed_bytes(self) -> int:
        """Bytes held whatever the length."""
        return 0 if self.per else self.row_bytes

    @property
    def token_bytes(self) -> int:
        """Bytes each token adds, on average and rounded up, until the window is full."""
        return -(-self.row_bytes // self.per) if self.per else 0

    def bytes_at(self, tokens: int) -> int:
        """Bytes held after `tokens` tokens."""
        held = min(tokens, self.window) if self.window else tokens
        return self.row_bytes * (held // self.per) if self.per else self.row_bytes


def lane_bytes(entries: tuple[StateEntry, ...], tokens: int) -> int:
    """Bytes one lane holds after `tokens` tokens."""
    return sum(entry.bytes_at(tokens) for entry in entries)


def state_spec(plan: DecoderPlan, drafter: DFlashDrafter | None = None) -> tuple[StateEntry, ...]:
    """Every buffer of a lane: layers in order, then those of the plan's own draft head, then a drafter's."""
    entries = list(_layers("layers", plan.layers, plan.activation))
    if plan.mtp is not None:
        entries += _layers("mtp.layers", plan.mtp.layers, plan.activation)
        entries.append(StateEntry("mtp.hidden", "hidden", plan.activation, _tapped(plan), rows="history"))
    if drafter is not None:
        # Of `window` keys a block reads one is its own, so context rows older than that are never read again.
        context = _layers("drafter.layers", drafter.layers, plan.activation)
        entries += (replace(entry, window=drafter.window - 1) for entry in context)
    return tuple(entries)


def _tapped(plan: DecoderPlan) -> tuple[int, ...]:
    assert plan.mtp is not None
    return (plan.streams, plan.width) if plan.mtp.tap.form == "streams" else (plan.width,)


def _layers(root: str, layers: tuple[Layer, ...], activation: str) -> Iterator[StateEntry]:
    for index, layer in enumerate(layers):
        for sublayer in layer:
            path = f"{root}.{index}.{sublayer.name}"
            if isinstance(sublayer.op, Parallel):
                for branch in sublayer.op.branches:
                    yield from op_state(branch.op, f"{path}.{branch.name}", activation)
            else:
                yield from op_state(sublayer.op, path, activation)


@singledispatch
def op_state(op: Op, path: str, activation: str) -> Iterator[StateEntry]:
    """The buffers of one op; an op without state has none."""
    yield from ()


@op_state.register
def _(op: Attention, path: str, activation: str) -> Iterator[StateEntry]:
    shape = (op.kv_heads, op.head_dim)
    yield StateEntry(f"{path}.keys", "keys", activation, shape, per=1, window=op.window, split=0)
    yield StateEntry(f"{path}.values", "values", activation, shape, per=1, window=op.window, split=0)


@op_state.register
def _(op: IndexedAttention, path: str, activation: str) -> Iterator[StateEntry]:
    yield from op_state(op.attention, path, activation)
    yield from _indexer(op.indexer, path, activation)


@op_state.register
def _(op: LatentAttention, path: str, activation: str) -> Iterator[StateEntry]:
    yield StateEntry(f"{path}.latent", "latent", activation, (op.kv_rank + op.rope_dim,), per=1)
    if op.indexer is not None:
        yield from _indexer(op.indexer, path, activation)


def _indexer(op: BlockIndexer, path: str, activation: str) -> Iterator[StateEntry]:
    yield StateEntry(f"{path}.index_keys", "index_keys", activation, (op.head_dim,), per=1)
    if op.pooling == "gated":
        yield StateEntry(f"{path}.index_gates", "index_gates", activation, (op.head_dim,), per=1)
    yield StateEntry(f"{path}.pooled_keys", "pooled_keys", activation, (op.head_dim,), per=op.ratio)


@op_state.register
def _(op: GatedDelta, path: str, activation: str) -> Iterator[StateEntry]:
    yield _conv(op.conv, path, activation, op.conv.channels)
    yield _recurrent(path, op.value_heads, op.key_dim, op.value_dim)


@op_state.register
def _(op: KimiDelta, path: str, activation: str) -> Iterator[StateEntry]:
    # Queries, keys and values are convolved side by side, in this order.
    yield _conv(op.conv, path, activation, 3 * op.heads * op.head_dim)
    yield _recurrent(path, op.heads, op.head_dim, op.head_dim)


@op_state.register
def _(op: Mamba2, path: str, activation: str) -> Iterator[StateEntry]:
    yield _conv(op.conv, path, activation, op.conv.channels)
    yield _recurrent(path, op.heads, op.head_dim, op.state)


@op_state.register
def _(op: HashedNgram, path: str, activation: str) -> Iterator[StateEntry]:
    yield StateEntry(f"{path}.tokens", "tokens", "int64", (op.ngram - 1,), rows="history")
    yield replace(_conv(op.conv, path, activation, op.conv.channels), split=None)


def _conv(conv: ShortConv, path: str, activation: str, channels: int) -> StateEntry:
    past = (conv.kernel - 1) * conv.dilation
    return StateEntry(f"{path}.conv", "conv", activation, (past, channels), rows="history", split=1)


def _recurrent(path: str, *shape: int) -> StateEntry:
    return StateEntry(f"{path}.recurrent", "recurrent", "float32", shape, rows="history", split=0)
