"""A block drafter with weights of its own: taps of kept rows become keys that a block of masked positions reads.

One pass drafts every position behind the pending token; a selector scores pairs of neighbouring candidates. Source: the
published configuration and tensors of DFlash2 (docs/recipes/qwen3.8-27b.md); embedding and head are the target's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import NormBlock
from tensorfold.adapters.mlx.decoder import Decoder
from tensorfold.adapters.mlx.heads.block_layer import BlockLayer
from tensorfold.adapters.mlx.heads.context_keys import ContextKeys
from tensorfold.adapters.mlx.heads.draft_rows import DraftRows
from tensorfold.adapters.mlx.heads.head import Kept
from tensorfold.adapters.mlx.heads.selector import Selector
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.application.ports.target_model import HeadLimits, Lattice, ProposeSpec
from tensorfold.domain.families.ops import Attention
from tensorfold.domain.families.plans import DFlashDrafter
from tensorfold.domain.families.state import StateEntry

A = TypeVar("A")
MOST_DRAFTS = 15


class BlockDrafts(Generic[A]):
    """A `Head` made of a drafter's plan and its own checkpoint, over the decoder's embedding and head."""

    def __init__(
        self, decoder: Decoder[A], plan: DFlashDrafter, own: WeightReader, target: WeightReader, name: str
    ) -> None:
        self._decoder, self._plan, self.ops = decoder, plan, decoder.ops
        assembly = Assembly(self.ops, own, plan.width)
        self._context = LinearBlock(assembly, ("context",))
        self._context_norm = NormBlock(assembly, plan.context_norm, "context_norm")
        self.layers = [BlockLayer(assembly, plan, index) for index in range(len(plan.layers))]
        self._output_norm = NormBlock(assembly, plan.output_norm, "output_norm")
        self._selector = Selector(assembly, plan)
        self._rows = DraftRows(decoder, target, plan.draft_ids)
        self.limits = HeadLimits("lattice", MOST_DRAFTS, MOST_DRAFTS, title=name)

    @property
    def taps(self) -> frozenset[int]:
        """The layers behind which it reads."""
        return frozenset(tap.layer for tap in self._plan.taps)

    @property
    def entries(self) -> tuple[StateEntry, ...]:
        """Keys and values of each layer, for the newest tokens that a block can reach."""
        made = []
        for index, layer in enumerate(self._plan.layers):
            op = layer[0].op
            assert isinstance(op, Attention)
            for kind in ("keys", "values"):
                path = f"drafter.layers.{index}.{layer[0].name}.{kind}"
                shape = (op.kv_heads, op.head_dim)
                made.append(StateEntry(path, kind, self.ops.dtype, shape, per=1, window=self._plan.window - 1))
        return tuple(made)

    def open(self, capacity: int) -> BlockLane[A]:
        """Empty state."""
        op = self._plan.layers[0][0].op
        assert isinstance(op, Attention)
        keys = [ContextKeys(self.ops, op, self._plan.window - 1) for _ in self.layers]
        return BlockLane(self, keys)

    def context(self, kept: Kept[A]) -> A:
        """One row for each kept token, of all taps side by side."""
        parts = [self._tapped(kept.tapped[tap.layer], tap.form) for tap in self._plan.taps]
        joined: A = self.ops.xp.concatenate(parts, axis=-1)
        return self._context_norm(self._context(joined))

    def _tapped(self, stream: Any, form: str) -> A:
        if form != "stream_mean":
            rows: A = stream
            return rows
        streams = self._decoder.plan.streams
        mean: A = self.ops.wide(stream).reshape(stream.shape[0], streams, -1).mean(axis=1)  # type: ignore[attr-defined]
        return self.ops.narrow(mean)

    def lattice(self, lane: BlockLane[A], spec: ProposeSpec) -> Lattice | None:
        """Candidates of `spec.depth` positions behind the pending token."""
        if lane.length == 0:
            return None
        count = spec.depth + 1
        ids = np.asarray([spec.pending, *[self._plan.mask_token] * spec.depth], np.int64)
        context: RowContext[A] = RowContext(ids, np.arange(lane.length, lane.length + count), ())
        rows = self._decoder.embedding(ids)
        for layer, keys in zip(self.layers, lane.keys, strict=True):
            rows = layer(rows, context, keys)
        hidden = self.ops.span(self._output_norm(rows), 1, count)
        return self._selector.lattice(self._rows, hidden, spec.pending)


class BlockLane(Generic[A]):
    """Keys and values of `length` kept tokens, as far as blocks can reach back."""

    def __init__(self, head: BlockDrafts[A], keys: list[ContextKeys[A]]) -> None:
        self._head, self.keys = head, keys

    @property
    def length(self) -> int:
        """Tokens absorbed."""
        return self.keys[0].length

    def absorb(self, kept: Kept[A]) -> None:
        """Enter a key and a value for each kept row, in every layer."""
        count, first = len(kept.tokens), self.length
        rows = self._head.context(kept)
        context: RowContext[A] = RowContext(np.asarray(kept.tokens, np.int64), np.arange(first, first + count), ())
        for layer, keys in zip(self._head.layers, self.keys, strict=True):
            keys.append(*layer.context(rows, context))

    def propose(self, spec: ProposeSpec) -> Lattice | None:
        """The lattice of a block behind the pending token."""
        return self._head.lattice(self, spec)

    def fork(self) -> BlockLane[A]:
        """An independent copy."""
        return BlockLane(self._head, [keys.fork() for keys in self.keys])

    def export(self) -> tuple[bytes, ...]:
        """Keys and values, layer by layer."""
        return tuple(part for keys in self.keys for part in keys.export())

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens."""
        for index, keys in enumerate(self.keys):
            keys.load(parts[2 * index : 2 * index + 2], length)

    def held_bytes(self) -> int:
        """Bytes of keys and values."""
        return sum(keys.held_bytes() for keys in self.keys)

    def buffers(self) -> Sequence[A]:
        """Keys and values."""
        return [buffer for keys in self.keys for buffer in keys.buffers()]
