"""Draft heads in float64: the chained MTP head of a plan, and the DFlash2 block drafter with its own checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.ops import Attention, SwiGLU
from tensorfold.domain.families.plans import DFlashDrafter, MtpHead, Sublayer
from tensorfold.kernels.reference.attention import attend
from tensorfold.kernels.reference.block_conv import block_conv, dynamic_kernels
from tensorfold.kernels.reference.pair_selector import greedy_chain
from tests.reference.lane import Lane
from tests.reference.reference_layers import read_out, run_layer
from tests.reference.reference_model import Fed, ReferenceModel
from tests.reference.reference_ops import Slots, apply, turned
from tests.reference.slot_reader import SlotReader

Floats = NDArray[np.float64]


def mtp_logits(model: ReferenceModel, tokens: Sequence[int], chained: Sequence[int] = ()) -> Floats:
    """Logits [T - 1 + C, V] of the model's own head: entry i reads row i and token i + 1, and predicts token i + 2.

    The tokens in `chained` follow the last of `tokens` as drafts: their entries read what the head's last entry gave.
    """
    fed = Fed()
    for token in tokens:
        model.feed(fed, token)
    return mtp_logits_of(model, fed, chained)


def mtp_logits_of(model: ReferenceModel, fed: Fed, chained: Sequence[int] = ()) -> Floats:
    """The same behind rows that were fed already, one after another."""
    mtp = model.plan.mtp
    assert mtp is not None
    lane = Lane()
    made: list[Floats] = []
    given = np.zeros(0)
    for number, (_, following) in enumerate(pairwise(fed.lane.rows)):
        logits, given = _entry(model, mtp, lane, model.tap(fed, number, mtp.tap), following.token)
        made.append(logits)
    for draft in chained:
        logits, given = _entry(model, mtp, lane, given, draft)
        made.append(logits)
    return np.stack(made)


def _entry(model: ReferenceModel, mtp: MtpHead, lane: Lane, hidden: Floats, token: int) -> tuple[Floats, Floats]:
    """Logits of one entry, and the row that a chained entry reads."""
    slots = Slots(model.reader, "mtp")
    number = lane.add(token)
    # Entries count from 0 under "entry"; entry i holds token i + 1 under "token".
    if mtp.positions == "token":
        lane.rows[number] = type(lane.rows[number])(token, number + 1, lane.rows[number].path)
    embedded = model.embed(token, scaled=False)
    if mtp.zero_first_embedding and number == 0:
        embedded = np.zeros_like(embedded)
    embedded = slots.norm("embedding_norm", mtp.embedding_norm, embedded)
    normed = slots.norm("hidden_norm", mtp.hidden_norm, hidden)
    if mtp.join == "concatenate":
        streams = slots.linear("join", np.concatenate([embedded, normed]))[None]
    else:
        parts = normed.reshape(-1, len(embedded))
        streams = slots.linear("join_embedding", embedded) + slots.linear("join_hidden", parts)
    for index, layer in enumerate(mtp.layers):
        streams = run_layer(layer, slots.below(f"layers.{index}"), streams, lane.at(number))
    read = read_out(mtp.readout, slots.below("readout"), streams)
    return model.head(read), read if mtp.feedback == "readout" else streams.reshape(-1)


@dataclass(frozen=True, slots=True)
class DraftedBlock:
    """Of each drafted position the logits [L - 1, V] and the hidden rows [L - 1, D] behind them."""

    logits: Floats
    hidden: Floats


@dataclass(frozen=True, slots=True)
class ReferenceDrafter:
    """A DFlash2 drafter and the target whose embedding, head and taps it reads."""

    plan: DFlashDrafter
    reader: SlotReader
    target: ReferenceModel

    @staticmethod
    def load(folder: Path, plan: DFlashDrafter, target: ReferenceModel) -> ReferenceDrafter:
        """The drafter of a checkpoint folder."""
        return ReferenceDrafter(plan, SlotReader.of(folder, plan.tensors), target)

    def dflash(self, tokens: Sequence[int], length: int | None = None) -> DraftedBlock:
        """One block behind `tokens`: all but the last are committed, the last is the block's anchor."""
        return self.block(self.context(tokens[:-1]), tokens[-1], len(tokens) - 1, length or self.plan.block)

    def chain(self, anchor: int, block: DraftedBlock) -> list[int]:
        """The drafts that the selector chooses greedily."""
        slots = Slots(self.reader, "selector")
        codes = slots["predecessor"], slots["successor"]
        return greedy_chain(anchor, block.logits, block.hidden, slots["projection"], codes, self.plan.candidates)

    def context(self, tokens: Sequence[int]) -> Floats:
        """Context rows [T, D] of committed tokens, from the target's taps."""
        fed = Fed()
        for token in tokens:
            self.target.feed(fed, token)
        taps = [
            np.concatenate([self.target.tap(fed, row, tap) for tap in self.plan.taps]) for row in range(len(tokens))
        ]
        return self.context_of_taps(np.array(taps).reshape(len(tokens), -1))

    def context_of_taps(self, taps: Floats) -> Floats:
        """Context rows [T, D] of tap rows [T, taps * D]."""
        slots = Slots(self.reader, "")
        if not len(taps):
            return np.zeros((0, self.plan.width))
        return slots.norm("context_norm", self.plan.context_norm, slots.linear("context", taps))

    def block(self, context: Floats, anchor: int, start: int, length: int) -> DraftedBlock:
        """One forward of the anchor, at position `start`, and `length` - 1 masks behind it."""
        tokens = [anchor] + [self.plan.mask_token] * (length - 1)
        rows = np.stack([self.target.embed(token, scaled=False) for token in tokens])
        hidden = self.hidden(context, rows, start)[1:]
        return DraftedBlock(np.stack([self.target.head(row) for row in hidden]), hidden)

    def hidden(self, context: Floats, rows: Floats, start: int) -> Floats:
        """The block's rows [L, D] behind all layers and the last norm; the first is at position `start`."""
        for index, (mixer, mlp) in enumerate(self.plan.layers):
            slots = Slots(self.reader, f"layers.{index}")
            rows = rows + self._attention(mixer, slots.below(mixer.name), rows, context, start)
            rows = rows + self._mlp(mlp, slots.below(mlp.name), rows)
        return Slots(self.reader, "").norm("output_norm", self.plan.output_norm, rows)

    def _attention(self, sub: Sublayer, slots: Slots, rows: Floats, context: Floats, start: int) -> Floats:
        op = sub.op
        assert isinstance(op, Attention)
        normed = slots.norm("pre_norm", sub.pre_norm, rows)
        base, dynamic = self._kernels(slots, normed)
        mixed = block_conv(normed, base[0], dynamic[:, 0])
        places = np.concatenate([np.arange(start - len(context), start), np.arange(start, start + len(rows))])
        sources = np.concatenate([context, mixed])
        keys = np.stack([self._key(op, slots, row, int(at)) for row, at in zip(sources, places, strict=True)])
        values = slots.linear("v", sources).reshape(len(sources), op.kv_heads, op.head_dim)
        queries = slots.norm("q_norm", op.q_norm, slots.linear("q", mixed).reshape(len(rows), op.heads, op.head_dim))
        turned_queries = np.stack([turned(op.rope, heads, start + r) for r, heads in enumerate(queries)])
        reads = [self._reads(r, places, len(context)) for r in range(len(rows))]
        made = attend(turned_queries, keys, values, reads, op.scale)
        return block_conv(slots.linear("out", made.reshape(len(rows), -1)), base[1], dynamic[:, 1])

    def _reads(self, row: int, places: NDArray[np.int64], before: int) -> list[int]:
        """Keys of a block's row: the whole block, or its part so far when causal, and the context inside the window."""
        own = int(places[before + row])
        block = range(before, before + row + 1) if self.plan.causal else range(before, len(places))
        return [key for key in range(before) if own - int(places[key]) < self.plan.window] + list(block)

    @staticmethod
    def _key(op: Attention, slots: Slots, row: Floats, position: int) -> Floats:
        heads = slots.linear("k", row).reshape(op.kv_heads, op.head_dim)
        return turned(op.rope, slots.norm("k_norm", op.k_norm, heads), position)

    def _mlp(self, sub: Sublayer, slots: Slots, rows: Floats) -> Floats:
        normed = slots.norm("pre_norm", sub.pre_norm, rows)
        base, dynamic = self._kernels(slots, normed)
        mixed = block_conv(normed, base[0], dynamic[:, 0])
        assert isinstance(sub.op, SwiGLU)
        lane = Lane()
        at = lane.at(lane.add(0))
        made = np.stack([apply(sub.op, slots, row, at, row) for row in mixed])
        return block_conv(made, base[1], dynamic[:, 1])

    def _kernels(self, slots: Slots, normed: Floats) -> tuple[Floats, Floats]:
        """Base [2, taps, D] and dynamic [R, 2, taps, groups] kernels of a sublayer; the identity without taps."""
        if not self.plan.conv_taps:
            return np.ones((2, 1, self.plan.width)), np.zeros((len(normed), 2, 1, 1))
        return slots["mix.base"], dynamic_kernels(normed, slots["mix.projection"], self.plan.conv_taps)
