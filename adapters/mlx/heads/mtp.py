"""A model's own head: one more decoder layer that reads a kept row and the token behind it, and drafts the next one.

Entry i of its state joins the row of position i with the embedding of token i + 1, so the last kept row waits until its
token is known: the next rows bring it, or a draft that begins there does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import NormBlock
from tensorfold.adapters.mlx.blocks.readout import ReadoutBlock
from tensorfold.adapters.mlx.decoder import Decoder
from tensorfold.adapters.mlx.heads.draft_rows import DraftRows
from tensorfold.adapters.mlx.heads.head import Kept
from tensorfold.adapters.mlx.layouts import chain_layout
from tensorfold.adapters.mlx.row_context import RowContext, Segment
from tensorfold.adapters.mlx.states import LayerState
from tensorfold.adapters.mlx.sublayers import build_layers
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.application.ports.target_model import Chain, HeadLimits, ProposeSpec
from tensorfold.domain.families.plans import DecoderPlan, MtpHead
from tensorfold.domain.families.state import StateEntry

A = TypeVar("A")
MOST_DRAFTS = 8


class MtpDrafts(Generic[A]):
    """A `Head` made of the plan's `mtp` part, over the decoder's embedding and head."""

    def __init__(self, decoder: Decoder[A], plan: DecoderPlan, weights: WeightReader) -> None:
        assert plan.mtp is not None
        self._decoder, self._plan, self.ops = decoder, plan.mtp, decoder.ops
        assembly = Assembly(self.ops, weights, plan.width, plan.streams)
        self.join = Join(assembly, plan.mtp, plan.streams)
        self.layers = build_layers(assembly, plan.mtp.layers, "mtp.layers")
        self._readout = ReadoutBlock(assembly, plan.mtp.readout, "mtp.readout")
        self._rows = DraftRows(decoder, weights, plan.mtp.draft_ids)
        self._stateful = assembly.stateful
        self._hidden = (plan.streams, plan.width) if plan.mtp.tap.form == "streams" else (plan.width,)
        self.limits = HeadLimits("chain", MOST_DRAFTS, plan.mtp.max_drafts, plan.mtp.min_confidence, plan.mtp.whole_run)

    @property
    def taps(self) -> frozenset[int]:
        """The layer behind which its row is read."""
        return frozenset({self._plan.tap.layer})

    @property
    def entries(self) -> tuple[StateEntry, ...]:
        """Those of its layers, and the row that waits."""
        hidden = StateEntry("mtp.hidden", "hidden", self.ops.dtype, self._hidden, rows="history")
        return (*(entry for _, entries in self._stateful for entry in entries), hidden)

    def open(self, capacity: int) -> MtpLane[A]:
        """Empty state."""
        return MtpLane(self, tuple(block.state(capacity) for block, _ in self._stateful))

    def loaded(self, lane: MtpLane[A], parts: Sequence[bytes], length: int) -> None:
        """Fill an empty lane's state from exported buffers."""
        at = 0
        for state, (_, entries) in zip(lane.states, self._stateful, strict=True):
            state.load(parts[at : at + len(entries)], max(0, length - 1))
            at += len(entries)
        lane.waiting = self.ops.unpack(parts[at], (1, int(np.prod(self._hidden))), self.ops.dtype) if length else None

    def row_size(self) -> int:
        """Values of a row that waits."""
        return int(np.prod(self._hidden))

    def tapped(self, kept: Kept[A]) -> A:
        """The rows it reads, of kept ones."""
        stream = kept.tapped[self._plan.tap.layer]
        return self._decoder.readout(stream) if self._plan.tap.form == "readout" else stream

    def run(self, states: Sequence[LayerState[A]], hidden: A, tokens: Sequence[int]) -> A:
        """Residual rows behind its layers, for entries that join `hidden` with the `tokens` behind them."""
        first, count = states[0].length if states else 0, len(tokens)
        ids = np.asarray(tokens, np.int64)
        embedded: Any = self._decoder.embedding(ids)
        if self._plan.zero_first_embedding and first == 0:
            embedded = embedded * self.ops.constant(np.r_[0.0, np.ones(count - 1)].astype(np.float32)[:, None])
        layout = chain_layout(first, count)
        shift = 1 if self._plan.positions == "token" else 0
        segment: Segment[A] = Segment(tuple(states), layout, 0, count)
        context: RowContext[A] = RowContext(ids, layout.positions + shift, (segment,))
        stream = self.join(embedded, hidden)
        for layer in self.layers:
            for sublayer in layer:
                stream = sublayer(stream, context)
        return stream

    def chain(self, lane: MtpLane[A], spec: ProposeSpec) -> Chain | None:
        """A chain behind the pending token; drafted entries go into a copy of the state."""
        if lane.waiting is None:
            return None
        states = tuple(state.fork() for state in lane.states)
        position = (states[0].length if states else 0) + 1
        hidden, token = lane.waiting, spec.pending
        tokens: list[int] = []
        confidence: list[float] = []
        for depth in range(1, spec.depth + 1):
            stream = self.run(states, hidden, [token])
            rows = self._readout(stream)
            token, sure = self._rows.draw(self._rows.logits(rows)[0], position + depth, spec.sampling)
            whole = float(np.prod([*confidence, sure])) if self.limits.whole_run else sure
            if tokens and whole < spec.min_confidence:
                break
            tokens.append(token)
            confidence.append(sure)
            for state in states:
                state.keep((0,))
            hidden = stream if self._plan.feedback == "streams" else rows
        return Chain(tuple(tokens), tuple(confidence))


class MtpLane(Generic[A]):
    """Entries in `states`, and the last kept row [1, ..], whose token is not known yet."""

    def __init__(self, head: MtpDrafts[A], states: tuple[LayerState[A], ...], waiting: A | None = None) -> None:
        self._head, self.states, self.waiting = head, states, waiting

    def absorb(self, kept: Kept[A]) -> None:
        """Enter the row that waited and all kept ones but the last, each with the token behind it."""
        ops, rows = self._head.ops, self._head.tapped(kept)
        count = len(kept.tokens)
        hidden = [] if self.waiting is None else [self.waiting]
        hidden += [ops.span(rows, 0, count - 1)] if count > 1 else []
        tokens = kept.tokens if self.waiting is not None else kept.tokens[1:]
        if tokens:
            self._head.run(self.states, ops.join(hidden), tokens)
            for state in self.states:
                state.keep(tuple(range(len(tokens))))
        # A copy: a view would keep all rows of a prompt alive as long as the lane.
        self.waiting = ops.pick(rows, [count - 1])

    def propose(self, spec: ProposeSpec) -> Chain | None:
        """A chain behind the pending token."""
        return self._head.chain(self, spec)

    def fork(self) -> MtpLane[A]:
        """An independent copy."""
        return MtpLane(self._head, tuple(state.fork() for state in self.states), self.waiting)

    def export(self) -> tuple[bytes, ...]:
        """The buffers of its layers, and the row that waits."""
        ops = self._head.ops
        rows = self.waiting if self.waiting is not None else ops.constant(np.zeros(self._head.row_size(), np.float32))
        return (*(part for state in self.states for part in state.export()), ops.pack(rows))

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens."""
        self._head.loaded(self, parts, length)

    def held_bytes(self) -> int:
        """Bytes of its layers' buffers."""
        return sum(state.held_bytes() for state in self.states)

    def buffers(self) -> Sequence[A]:
        """Its layers' buffers and the row that waits."""
        waiting = [] if self.waiting is None else [self.waiting]
        return [*(buffer for state in self.states for buffer in state.buffers()), *waiting]


class Join(Generic[A]):
    """How a row and the embedding of the token behind it become the head's input."""

    def __init__(self, assembly: Assembly[A], plan: MtpHead, streams: int) -> None:
        self._ops, self._plan, self._streams = assembly.ops, plan, streams
        self._embedding_norm = NormBlock(assembly, plan.embedding_norm, "mtp.embedding_norm")
        self._hidden_norm = NormBlock(assembly, plan.hidden_norm, "mtp.hidden_norm")
        if plan.join == "concatenate":
            self._join = LinearBlock(assembly, ("mtp.join",))
        else:
            self._join_embedding = LinearBlock(assembly, ("mtp.join_embedding",))
            self._join_hidden = LinearBlock(assembly, ("mtp.join_hidden",))

    def __call__(self, embedded: A, hidden: A) -> A:
        """Rows [n, D], or all streams side by side where each is joined for itself."""
        xp: Any = self._ops.xp
        embedded, normed = self._embedding_norm(embedded), self._hidden_norm(hidden)
        if self._plan.join == "concatenate":
            joined: A = xp.concatenate([embedded, normed], axis=-1)
            return self._join(joined)
        rows: Any = normed
        parts: Any = self._join_hidden(rows.reshape(rows.shape[0] * self._streams, -1))
        beside = xp.concatenate([self._join_embedding(embedded)] * self._streams, axis=-1)
        made: A = parts.reshape(rows.shape[0], -1) + beside
        return made
