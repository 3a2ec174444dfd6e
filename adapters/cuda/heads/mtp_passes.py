"""Chains of drafts for several lanes at once, as graphs: one enters what was kept and drafts once, one goes a step on.

The first pass's graph is found by its rows and lanes, the step's by its lanes alone; a draw feeds the next step on the
device, so a chain of any depth is queued without waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.heads.blocks import IntBlock, Reading, row_shapes, rows_of
from tensorfold.adapters.cuda.heads.draft_logits import DraftLogits
from tensorfold.adapters.cuda.heads.graphs import Graphs, padded
from tensorfold.adapters.cuda.heads.head import Found
from tensorfold.adapters.cuda.heads.mtp_layers import MtpLayers
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.adapters.cuda.sampler import DrawRules, RowDraw, make_scratch
from tensorfold.kernels.triton.draft_ahead import CHAIN_FACTS, EntryRows, NextRows, Nobody, enter_chains
from tensorfold.kernels.triton.draft_rows import ChainRows, advance
from tensorfold.kernels.triton.sampler import draw_rows


@dataclass(frozen=True, slots=True)
class Entries:
    """What one lane enters: tokens, the flat rows of the pool they join with, and where the first of them stands.

    `draw` is the first draft's, None where keys alone are wanted.
    """

    slot: int
    first: int
    tokens: Sequence[int]
    sources: Sequence[int]
    draw: RowDraw | None = None


@dataclass(frozen=True, slots=True)
class Following:
    """A lane that enters the rows of a launch that stand, behind the one row `waits` of the pool, and drafts.

    `first` is where that row's entry stands, `draw` the first draft's if no row stood; the launch's rows go into `room`
    of the pool. `line` and `start` are those of its window among the launch's windows and rows.
    """

    slot: int
    first: int
    waits: int
    room: range
    line: int
    start: int
    draw: RowDraw

    def entries(self) -> Entries:
        """What it would enter if no row stood."""
        return Entries(self.slot, self.first, (0,), (self.waits,), self.draw)

    def facts(self) -> tuple[int, ...]:
        """As `enter_chains` reads them."""
        return self.line, self.start, self.slot, self.first, self.waits, self.room.start


@dataclass(frozen=True, slots=True)
class Sizes:
    """The most steps of a chain, the shift of rotary positions, the width of windows, and nobody's slot and row."""

    most: int
    shift: int
    width: int
    nobody: int
    nobody_row: int


class Chains:
    """The state of chains over B lanes, and their passes."""

    def __init__(
        self,
        layers: MtpLayers,
        logits: DraftLogits,
        pool: Tensor,
        table: Tensor,
        sizes: Sizes,
        lanes: int,
        graphs: Graphs,
    ) -> None:
        device = pool.device
        self._layers, self._logits, self._pool, self._table = layers, logits, pool, table
        self._sizes, self._graphs, self.lanes = sizes, graphs, lanes
        self._block = IntBlock({**row_shapes(lanes, sizes.width), "step": (1,)}, device)
        self._rows = rows_of(self._block.device, table)
        self._rules = DrawRules(lanes, device)
        self._scratch = make_scratch(lanes, device)
        self._tokens = torch.zeros(lanes, dtype=torch.int32, device=device)
        self._shares = torch.zeros(lanes, dtype=torch.float32, device=device)
        self._feed = torch.zeros((lanes, pool.shape[1]), dtype=pool.dtype, device=device)
        self.told = torch.zeros((2, sizes.most, lanes), dtype=torch.int32, device=device)
        self._told_shares = self.told[1].view(torch.float32)
        self._firsts: dict[int, FirstRows] = {}
        at = self._block.device
        self._chain = ChainRows(
            at["ids"], at["positions"], at["lengths"], at["committed"], at["slots"], at["path"],
            self._rules.rules.positions,
        )  # fmt: skip
        self._every = torch.arange(lanes, dtype=torch.int32, device=device)
        self._facts = IntBlock({"facts": (lanes, CHAIN_FACTS)}, device)
        self._next = NextRows(
            at["positions"], at["lengths"], at["committed"], at["slots"], at["path"], self._rules.rules.positions
        )
        self.turn = 0
        """Changes whenever the chains begin anew."""

    def start(self, lanes: Sequence[Entries]) -> None:
        """Enter the lanes' rows and draft once behind each."""
        rows = padded(sum(len(lane.tokens) for lane in lanes))
        self._first_rows(rows).send(lanes)
        self._send(lanes)
        self._begin(rows)

    def follow(self, lanes: Sequence[Following], rows: int, found: Found, stream: Tensor) -> None:
        """Enter those of a launch's rows `stream` that stand, at most `rows` with one more a lane; draft once."""
        first = self._first_rows(padded(rows))
        self._send([lane.entries() for lane in lanes])
        self._facts.host()["facts"][: len(lanes)] = [lane.facts() for lane in lanes]
        self._facts.send()
        nobody = Nobody(self._sizes.nobody, self._sizes.nobody_row, self._sizes.shift)
        facts = self._facts.device["facts"]
        enter_chains(found.kept, found.tokens, facts, len(lanes), stream, self._pool, first.entries, self._next, nobody)
        self._begin(padded(rows))

    def _first_rows(self, rows: int) -> FirstRows:
        if rows not in self._firsts:
            self._firsts[rows] = FirstRows(self._sizes, rows, self.lanes, self._table)
        return self._firsts[rows]

    def _begin(self, rows: int) -> None:
        """The pass over rows that were filled in."""
        first = self._firsts[rows]
        self.turn += 1

        def queue() -> None:
            hidden = self._layers.tapped(self._pool.index_select(0, first.sources))
            made = self._layers.enter(hidden, first.rows, first.lasts)
            assert made is not None
            self._draw(made)

        self._graphs.run(("first", rows, self.lanes), queue)

    def step(self) -> None:
        """Draft once more behind each lane's last draft."""

        def queue() -> None:
            made = self._layers.enter(self._feed, self._rows, self._every)
            assert made is not None
            self._draw(made)

        self._graphs.run(("step", self.lanes), queue)

    def _draw(self, made: Tensor) -> None:
        self._feed.copy_(made)
        logits = self._logits.decode(made)
        draw_rows(logits, self._rules.rules, self._scratch, self._tokens, ids=self._logits.ids, shares=self._shares)
        advance(self._tokens, self._shares, self._chain, self._block.device["step"], self.told[0], self._told_shares)

    def _send(self, lanes: Sequence[Entries]) -> None:
        """Each lane's row as the first pass has it: what is drawn moves it on."""
        fields, sizes = self._block.host(), self._sizes
        for name, value in (("lanes", sizes.nobody), ("lengths", 1), ("step", 0), ("ids", 0)):
            fields[name][:] = value
        for name in ("positions", "committed", "slots", "path"):
            fields[name][:] = 0
        for at, lane in enumerate(lanes):
            place = lane.first + len(lane.tokens) - 1
            fields["lanes"][at] = lane.slot
            fields["positions"][at] = place + sizes.shift
            fields["lengths"][at] = place + 1
            fields["committed"][at] = fields["slots"][at] = place
            fields["path"][at] = range(place, place + sizes.width)
        self._block.send()
        self._rules.send([lane.draw for lane in lanes])


class FirstRows:
    """The rows of a first pass: those that lanes enter, padded with nobody's."""

    def __init__(self, sizes: Sizes, rows: int, lanes: int, table: Tensor) -> None:
        self._sizes = sizes
        shapes = {**row_shapes(rows, sizes.width), "sources": (rows,), "lasts": (lanes,)}
        self._block = IntBlock(shapes, table.device)
        self.rows = rows_of(self._block.device, table)
        at = self._block.device
        self.sources, self.lasts = at["sources"], at["lasts"]
        self.entries = EntryRows(
            at["ids"], at["sources"], at["lanes"], at["slots"], at["positions"], at["lengths"], at["committed"],
            at["path"], at["lasts"],
        )  # fmt: skip

    def send(self, lanes: Sequence[Entries]) -> None:
        """Fill and copy them."""
        fields, sizes, at = self._block.host(), self._sizes, 0
        for number, lane in enumerate(lanes):
            count = len(lane.tokens)
            part = slice(at, at + count)
            fields["ids"][part] = lane.tokens
            fields["sources"][part] = lane.sources
            fields["lanes"][part] = lane.slot
            places = range(lane.first, lane.first + count)
            fields["slots"][part] = places
            fields["positions"][part] = fields["slots"][part] + sizes.shift
            fields["lengths"][part] = fields["slots"][part] + 1
            fields["committed"][part] = lane.first
            fields["path"][part] = range(lane.first, lane.first + sizes.width)
            at += count
            fields["lasts"][number] = at - 1
        fields["lasts"][len(lanes) :] = len(fields["ids"]) - 1
        rest = slice(at, None)
        for name in ("ids", "positions", "committed", "slots", "path"):
            fields[name][rest] = 0
        fields["lanes"][rest], fields["lengths"][rest] = sizes.nobody, 1
        fields["sources"][rest] = sizes.nobody_row
        self._block.send()


class Told:
    """What chains tell of `depth` steps, on its way to the host.

    `unmoved` says whether every lane of theirs still stands where they left it: a further step writes keys of all.
    """

    def __init__(self, chains: Chains, depth: int, unmoved: Callable[[], bool]) -> None:
        self._chains, self._depth, self._turn = chains, depth, chains.turn
        self._reading, self._unmoved = Reading(chains.told), unmoved

    def read(self, depth: int) -> tuple[list[list[int]], list[list[float]]] | None:
        """Tokens and shares [depth][lanes]; more steps are made where they can be, else None."""
        if depth > self._depth:
            turn, self._turn = self._turn, -1  # behind a fault on the way nobody knows how many were made
            if self._chains.turn != turn or not self._unmoved():
                return None
            for _ in range(depth - self._depth):
                self._chains.step()
            self._depth, self._reading, self._turn = depth, Reading(self._chains.told), turn
        told = self._reading.get()[:, :depth]
        return told[0].tolist(), told[1].contiguous().view(torch.float32).tolist()
