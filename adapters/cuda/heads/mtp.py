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
from tensorfold.adapters.cuda.heads.head import Behind, Found, KeptRows, QueuedDrafts, Taps, copied_pages
from tensorfold.adapters.cuda.heads.mtp_layers import MtpLayers
from tensorfold.adapters.cuda.heads.mtp_passes import Chains, Entries, FirstRows, Following, Sizes, Told
from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.rows import CONV_PAST, Chunk, Tensor
from tensorfold.adapters.cuda.sampler import RowDraw
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
        told = self._drafted(chains, [spec for _, _, spec in ready])
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
        told = self._drafted(chains, [each.spec for _, each, _ in ready])
        for column, (at, each, lane) in enumerate(ready):
            made[at] = QueuedChain(self, each, lane.room, told, column)
        return made

    def _drafted(self, chains: Chains, specs: Sequence[ProposeSpec]) -> Told:
        """Go on to the deepest of what is asked."""
        depth = max(spec.depth for spec in specs)
        for _ in range(depth - 1):
            chains.step()
        return Told(chains, depth)

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


class MtpLane:
    """`count` entries in the head's pages, and kept rows that wait: the last for its token, others to be entered."""

    def __init__(self, head: MtpDrafts, entry: LaneEntry) -> None:
        self._head, self._entry = head, entry
        self._base = entry.slot * head.rows_each
        self.count = 0
        self._rows: list[int] = []  # flat rows of the pool that wait, in order
        self._tokens: list[int] = []  # those behind them, the last one's missing
        self._held: Tensor | None = None  # the row that waits, beside a kept state

    @property
    def ready(self) -> bool:
        """Whether it can draft."""
        return bool(self._rows)

    @property
    def waiting(self) -> int:
        """Kept rows that are not entered."""
        return len(self._rows)

    def absorb(self, tokens: tuple[int, ...], taps: Taps) -> None:
        """Take in a prompt's span."""
        if len(tokens) > self._head.width:
            self._absorb_span(tokens, taps[self._head.tap])
        else:
            self._head.take([KeptRows(self, tokens, range(len(tokens)))], taps)

    def wait(self, tokens: tuple[int, ...]) -> range:
        """Further kept tokens; the flat rows of the pool in which theirs wait."""
        if len(self._rows) + len(tokens) > self._head.width:
            self.enter()
        rows = self._next_rows(len(tokens))
        if rows.start == self._base:
            self.enter()
        self._tokens += tokens if self._rows else tokens[1:]
        self._rows += rows
        return rows

    @property
    def follows(self) -> bool:
        """Whether drafts can be queued behind a launch of it: one row waits, whose token will be the launch's first."""
        return len(self._rows) == 1 and self._entry.slot >= 0

    def following(self, behind: Behind) -> Following:
        """What it will enter behind a launch."""
        draw = RowDraw(self.count + 2, behind.spec.sampling)
        room = self._next_rows(behind.rows)
        return Following(self._entry.slot, self.count, self._rows[0], room, behind.line, behind.start, draw)

    def wait_in(self, room: range, tokens: tuple[int, ...]) -> None:
        """Further kept tokens, whose rows lie in `room` already."""
        self._tokens += tokens
        self._rows += room[: len(tokens)]

    def _next_rows(self, count: int) -> range:
        """Rows of the pool behind those that wait, or the lane's first ones."""
        start = self._rows[-1] + 1 if self._rows else self._base
        if start + count > self._base + self._head.rows_each:
            start = self._base
        return range(start, start + count)

    def _absorb_span(self, tokens: tuple[int, ...], stream: Tensor) -> None:
        self.enter()
        hidden, behind = stream[:-1], tokens[1:]
        if self._rows:
            hidden, behind = torch.cat([self._head.pool[self._rows[0] : self._rows[0] + 1], hidden]), tokens
        self._head.enter_span(self._entry, self.count, behind, hidden)
        self.count += len(behind)
        self._wait_with(stream[-1])

    def _wait_with(self, row: Tensor) -> None:
        self._head.pool[self._base].copy_(row)
        self._rows, self._tokens = [self._base], []

    def enter(self) -> None:
        """Enter the rows whose tokens are known."""
        if self._tokens:
            self._head.enter(Entries(self._entry.slot, self.count, self._tokens, self._rows[:-1]))
            self.entered()

    def entries(self, spec: ProposeSpec) -> Entries:
        """What waits, with `spec.pending` behind the last row, and the draw of the token behind that."""
        # The pending token stands one place behind the last entered row.
        position = self.count + len(self._rows) + 1
        draw = RowDraw(position, spec.sampling)
        return Entries(self._entry.slot, self.count, [*self._tokens, spec.pending], list(self._rows), draw)

    def entered(self) -> None:
        """The rows whose tokens are known have been entered."""
        self.count += len(self._tokens)
        self._rows, self._tokens = self._rows[-1:], []

    def propose(self, spec: ProposeSpec) -> Chain | None:
        """A chain behind the pending token."""
        return self._head.propose([(self, spec)])[0]

    def fork(self, entry: LaneEntry) -> MtpLane:
        """A copy for another entry with the same committed tokens."""
        self.enter()
        twin = self._head.open(entry)
        twin.count = self.count
        pairs = copied_pages(self._entry, entry, self.count)
        for block in self._head.layers.keyed:
            block.copy_pages(pairs)
        row = self._waiting()
        if row is not None:
            if entry.slot >= 0:
                twin._wait_with(row)
            else:
                twin._held = row.clone()
        return twin

    def _waiting(self) -> Tensor | None:
        return self._head.pool[self._rows[-1]] if self._rows else self._held

    def export(self) -> tuple[bytes, ...]:
        """The buffers of its layers, and the row that waits."""
        self.enter()
        parts = [part for block in self._head.layers.keyed for part in block.export(self._entry.pages, self.count)]
        row = self._waiting()
        held = self._head.pool.new_zeros(self._head.pool.shape[1]) if row is None else row
        return (*parts, held.cpu().contiguous().view(torch.uint8).numpy().tobytes())

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens. Raises ValueError on a wrong size."""
        pool = self._head.pool
        if len(parts[-1]) != pool.shape[1] * pool.element_size():
            raise ValueError(f"a draft head's row of {len(parts[-1])} bytes; it has {pool.shape[1]} numbers")
        self.count = max(0, length - 1)
        for at, block in enumerate(self._head.layers.keyed):
            block.load(self._entry.pages, parts[2 * at : 2 * at + 2], self.count)
        if length:
            row = torch.from_numpy(np.frombuffer(parts[-1], np.uint8).copy()).view(pool.dtype)
            self._wait_with(torch.nan_to_num(row).to(pool.device))


class QueuedChain:
    """A chain of one lane behind a launch, in column `column` of what is told."""

    def __init__(self, head: MtpDrafts, behind: Behind, room: range, told: Told, column: int) -> None:
        self._head, self._lane, self._asked = head, behind.lane, behind.spec
        self._room, self._told, self._column = room, told, column

    def take(self, tokens: tuple[int, ...]) -> None:
        """The lane keeps what was found."""
        self._lane.wait_in(self._room, tokens)

    def drafts(self, spec: ProposeSpec) -> Chain | None:
        """The chain, with more steps if more are asked for."""
        if spec.sampling != self._asked.sampling:
            return None
        made = self._head.chain(self._told, self._column, spec)
        if made is not None:
            self._lane.entered()
        return made
