"""A model's own head: one more decoder layer that reads a kept row and the token behind it, and drafts the next one.

Entry i joins the row of position i with the embedding of token i + 1, so the last kept row waits until its token is
known. Kept rows wait as well until a draft is asked for: the pass that drafts enters them all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.assembly import Assembly
from tensorfold.adapters.cuda.control import Table
from tensorfold.adapters.cuda.decoder import Decoder
from tensorfold.adapters.cuda.heads.blocks import IntBlock
from tensorfold.adapters.cuda.heads.draft_logits import DraftLogits
from tensorfold.adapters.cuda.heads.graphs import Graphs, padded
from tensorfold.adapters.cuda.heads.head import Behind, Found, KeptRows, QueuedDrafts, Taps
from tensorfold.adapters.cuda.heads.mtp_lane import MtpLane, QueuedChain
from tensorfold.adapters.cuda.heads.mtp_layers import MtpLayers
from tensorfold.adapters.cuda.heads.mtp_passes import Chains, Entries, FirstRows, Sizes, Told
from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.rows import CONV_PAST, Chunk, Tensor
from tensorfold.application.ports.target_model import Chain, HeadLimits, ProposeSpec
from tensorfold.domain.drafting.head_chains import confident
from tensorfold.domain.families.plans import MtpHead
from tensorfold.domain.families.state import StateEntry
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.kernels.triton.draft_rows import take_rows

MOST_DRAFTS = 8
MOST_ROWS = 64
"""Rows that lanes enter together in the pass that drafts; more are entered before it."""


def row_counts(room: Room) -> tuple[int, ...]:
    """Rows of its passes: what lanes enter, and one for each lane that goes a step on."""
    return tuple(1 << power for power in range(padded(max(MOST_ROWS, room.lanes - 1)).bit_length()))


class MtpDrafts:
    """A draft head made of a plan's `mtp` part, over the decoder's embedding and head. Raises RefusedError."""

    def __init__(self, assembly: Assembly, decoder: Decoder, plan: MtpHead, *, graphs: bool = True) -> None:
        room, device = assembly.room, assembly.device
        assembly.products.launched_with(row_counts(room))
        self._plan, self._activation = plan, assembly.activation
        self.layers = MtpLayers(assembly, decoder, plan)
        self._width = decoder.plan.width
        # A lane's kept rows wait here: those of two windows, so that a new window never meets one that still waits.
        self.rows_each = 2 * room.width + 2
        self.pool = torch.zeros((room.lanes * self.rows_each, self._width), dtype=assembly.dtype, device=device)
        self._moved = IntBlock({"sources": (room.rows,), "targets": (room.rows,)}, device)
        self.table = Table(room, device, [room.pages - 1])
        self.width = room.width
        shift = 1 if plan.positions == "token" else 0
        nobody = room.lanes - 1
        self._sizes = Sizes(MOST_DRAFTS, shift, room.width + 1, nobody, nobody * self.rows_each)
        self._logits = DraftLogits(assembly, decoder.plan.head, plan.draft_ids)
        self._graphs = Graphs(device, wanted=graphs)
        self._chains: dict[int, Chains] = {}
        self._entering: dict[int, FirstRows] = {}
        self.limits = HeadLimits("chain", MOST_DRAFTS, plan.max_drafts, plan.min_confidence, plan.whole_run)

    @property
    def taps(self) -> frozenset[int]:
        """The layer behind which its row is read."""
        return frozenset({self._plan.tap.layer})

    @property
    def entries(self) -> tuple[StateEntry, ...]:
        """Those of its layers, and the row that waits."""
        hidden = StateEntry("mtp.hidden", "hidden", self._activation, (self._width,), rows="history")
        return (*self.layers.entries, hidden)

    @property
    def tap(self) -> int:
        """The tapped layer count."""
        return self._plan.tap.layer

    def open(self, entry: LaneEntry) -> MtpLane:
        """Empty state of a lane, or of what stands beside a kept state."""
        if entry.slot >= 0:
            self.table.set(entry.slot, entry.pages)
        return MtpLane(self, entry)

    def move(self, moves: Tensor) -> None:
        """Nothing: only kept rows enter, in their order."""

    def take(self, kept: Sequence[KeptRows], taps: Taps) -> None:
        """Take in rows of one launch that lanes keep."""
        sources, targets = list[int](), list[int]()
        for each in kept:
            sources += each.rows
            targets += each.lane.wait(each.tokens)
        count, stream = len(sources), taps[self.tap]
        if sources == list(range(sources[0], sources[0] + count)) and len(kept) == 1:
            self.pool[targets[0] : targets[0] + count].copy_(stream[sources[0] : sources[0] + count])
            return
        fields = self._moved.host()
        fields["sources"][:count], fields["targets"][:count] = sources, targets
        self._moved.send()
        take_rows([stream], self._moved.device["sources"], self._moved.device["targets"], count, self.pool)

    def propose(self, asked: Sequence[tuple[MtpLane, ProposeSpec]]) -> list[Chain | None]:
        """Chains of several lanes, drafted side by side."""
        ready = [(at, lane, spec) for at, (lane, spec) in enumerate(asked) if lane.ready]
        answers: list[Chain | None] = [None] * len(asked)
        if not ready:
            return answers
        if sum(lane.waiting for _, lane, _ in ready) > MOST_ROWS:
            for _, lane, _ in ready:
                lane.enter()
        chains = self._chains_of(padded(len(ready)))
        chains.start([lane.entries(spec) for _, lane, spec in ready])
        told = self._drafted(chains, [(lane, spec) for _, lane, spec in ready])
        for column, (at, lane, spec) in enumerate(ready):
            lane.entered()
            answers[at] = self.chain(told, column, spec)
        return answers

    def queue(self, behind: Sequence[Behind], found: Found) -> list[QueuedDrafts | None]:
        """Queue chains for lanes of one launch that wait with one row; the others' cannot be."""
        made: list[QueuedDrafts | None] = [None] * len(behind)
        ready = [(at, each, each.lane.following(each)) for at, each in enumerate(behind) if each.lane.follows]
        rows = sum(1 + each.rows for _, each, _ in ready)
        if not ready or rows > MOST_ROWS:
            return made
        chains = self._chains_of(padded(len(ready)))
        chains.follow([lane for _, _, lane in ready], rows, found, found.taps[self.tap])
        told = self._drafted(chains, [(each.lane, each.spec) for _, each, _ in ready])
        for column, (at, each, lane) in enumerate(ready):
            made[at] = QueuedChain(self, each, lane.room, told, column)
        return made

    def _drafted(self, chains: Chains, asked: Sequence[tuple[MtpLane, ProposeSpec]]) -> Told:
        """Go on to the deepest of what is asked."""
        depth = max(spec.depth for _, spec in asked)
        for _ in range(depth - 1):
            chains.step()
        turns = [(lane, lane.turn) for lane, _ in asked]
        return Told(chains, depth, lambda: all(lane.turn == turn >= 0 for lane, turn in turns))

    def chain(self, told: Told, column: int, spec: ProposeSpec) -> Chain | None:
        """One lane's drafts as they were asked for; None where they cannot be had of this."""
        numbers = told.read(spec.depth)
        if numbers is None:
            return None
        tokens, shares = numbers
        sure = [min(max(shares[step][column], 0.0), 1.0) for step in range(spec.depth)]
        count = confident(sure, spec.min_confidence, whole_run=self.limits.whole_run)
        return Chain(tuple(tokens[step][column] for step in range(count)), tuple(sure[:count]))

    def _chains_of(self, lanes: int) -> Chains:
        if lanes not in self._chains:
            self._chains[lanes] = Chains(
                self.layers, self._logits, self.pool, self.table.device, self._sizes, lanes, self._graphs
            )
        return self._chains[lanes]

    def enter(self, entries: Entries) -> None:
        """Enter a lane's rows and draft nothing."""
        rows = padded(len(entries.tokens))
        if rows not in self._entering:
            self._entering[rows] = FirstRows(self._sizes, rows, 1, self.table.device)
        first = self._entering[rows]
        first.send([entries])
        self.layers.enter(self.layers.tapped(self.pool.index_select(0, first.sources)), first.rows, None)

    def enter_span(self, lane: LaneEntry, first: int, tokens: Sequence[int], hidden: Tensor) -> None:
        """Enter a prompt's entries: rows `hidden` [T, D] of the tapped residual, and the tokens behind them."""
        device, count = self.pool.device, len(tokens)
        start = first + self._sizes.shift
        chunk = Chunk(
            lane=lane.slot,
            start=first,
            count=count,
            ids=torch.from_numpy(np.asarray(tokens, np.int32)).to(device),
            positions=torch.arange(start, start + count, dtype=torch.int32, device=device),
            table=self.table.device[lane.slot],
            place=0,
            tail=torch.full((CONV_PAST,), -1, dtype=torch.int32, device=device),
            leave=(),
        )
        self.layers.prompt(self.layers.tapped(hidden), chunk)
