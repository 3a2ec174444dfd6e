"""One pass of a row count: its control block, the decoder and the draws, queued launch by launch or as one graph.

The graph's key is the row count alone. A graph is what its first, ordinary run queued, so both have the same kernels;
results lie in the same tensors at every replay and hold until the next one of any graph, since all share one pool.

Queueing a graph takes the host about a tenth of the time that the device needs for it, and the device waits until all
of it is queued. The graph of several rows is therefore cut: few layers first, then some, then all others, each piece
queued while the one before it runs. A piece starts when the one before has ended, so no kernel starts early across a
cut: what one reads before it waits, if it is nothing of the launch before its own, is there earlier than without one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.control import ControlBlock
from tensorfold.adapters.cuda.decoder import Decoder, Taps
from tensorfold.adapters.cuda.lane_book import LaneBook
from tensorfold.adapters.cuda.plans import PlannedRows
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.adapters.cuda.sampler import RowDraw, Sampler
from tensorfold.domain.memory.cuda_holding import Room

_SINGLE, _STEP = 16, 8


def padded(rows: int) -> int:
    """The row count whose pass takes `rows` rows: each up to 16 has its own, above that every eighth."""
    return rows if rows <= _SINGLE else -(-rows // _STEP) * _STEP


def counts(room: Room) -> tuple[int, ...]:
    """Every row count that has a pass."""
    return tuple(sorted({padded(rows) for rows in range(1, room.rows + 1)}))


def cuts(rows: int, layers: int) -> tuple[int, ...]:
    """The counts of finished layers at which the graph of so many rows is cut.

    Each piece takes the device longer than the host needs to queue the next, and the first is queued in no time. One
    row's graph is queued behind the round before it, where nothing waits for it and a cut would cost its early start.
    """
    if rows == 1:
        return ()
    return tuple(sorted(count for count in {max(1, layers // 32), 3 * layers // 16} if 0 < count < layers))


Queue = Callable[[Callable[[], None]], None]
"""Queues work; what it is given ends a piece of it."""


class Recorder(Protocol):
    """Makes graphs."""

    def record(self, queue: Queue) -> Callable[[], None]:
        """Take down what a call queues, without running it; what runs it, piece after piece."""
        ...


class CardGraphs:
    """Graphs of a card, over one pool of memory."""

    def __init__(self) -> None:
        self._pool: Any = None

    def record(self, queue: Queue) -> Callable[[], None]:
        """Take down what a call queues, without running it; what runs it, piece after piece.

        What a later piece reads of an earlier one is held by the call until it ends, so the pool gives it to nobody.
        """
        torch.cuda.synchronize()
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        replays: list[Callable[[], None]] = []
        with ExitStack() as piece:

            def begin() -> None:
                piece.close()
                graph = torch.cuda.CUDAGraph()
                piece.enter_context(torch.cuda.graph(graph, pool=self._pool))
                replays.append(graph.replay)

            begin()
            queue(begin)

        def replay() -> None:
            for each in replays:
                each()

        return replays[0] if len(replays) == 1 else replay


@dataclass(frozen=True, slots=True)
class Results:
    """What a run gives: `logits` float32 [R, V], the head's input [R, D], `tokens` int32 [R] and the tapped rows."""

    logits: Tensor = None
    hidden: Tensor = None
    tokens: Tensor = None
    taps: Taps = field(default_factory=dict)


class Pass:
    """Rows of one count; `recorder` makes its graph, None where none is wanted. `results` are those of the last run."""

    def __init__(
        self,
        decoder: Decoder,
        sampler: Sampler,
        control: ControlBlock,
        taps: Collection[int],
        recorder: Recorder | None,
    ) -> None:
        self._decoder, self._sampler, self._control, self._taps = decoder, sampler, control, taps
        self._recorder = recorder
        self._cuts = cuts(control.rows.count, len(decoder.layers))
        self._replay: Callable[[], None] | None = None
        self._recorded = Results()
        self.results = Results()

    @property
    def logits(self) -> Tensor:
        """Those of the last run."""
        return self.results.logits

    def run(
        self,
        planned: Sequence[PlannedRows],
        draws: Sequence[RowDraw | None],
        book: LaneBook,
        drawn: Tensor | None = None,
    ) -> None:
        """Queue the rows of a launch; `draws` has one entry for each of them, None where none is drawn.

        With `drawn` the tokens of the first rows are those on the device, not the plan's.
        """
        if self._recorder is not None and self._replay is None:
            self._capture(book, self._recorder)
        self._control.send(planned, book)
        if drawn is not None:
            self._control.rows.ids[: len(drawn)].copy_(drawn)
        self._sampler.send(draws)
        if self._replay is None:
            self._queue()
            return
        self._replay()
        # A run without the graph may have come between, whose results lie elsewhere.
        self.results = self._recorded

    def eager(self, planned: Sequence[PlannedRows], draws: Sequence[RowDraw | None], book: LaneBook) -> None:
        """The same without a graph, results in tensors of their own."""
        self._control.send(planned, book)
        self._sampler.send(draws)
        self._queue()

    def _queue(self, cut: Callable[[], None] | None = None) -> None:
        def reached(layers: int) -> None:
            if cut is not None and layers in self._cuts:
                cut()

        logits, hidden, taps = self._decoder.decode(self._control.rows, self._taps, reached)
        self.results = Results(logits, hidden, self._sampler.draw(logits), taps)

    def _capture(self, book: LaneBook, recorder: Recorder) -> None:
        """Make the graph; what runs meanwhile are rows that are nobody's, since steps that commit count twice."""
        self._control.send((), book)
        self._sampler.send([None] * self._control.rows.count)
        # Kernels compile and workspaces grow in an ordinary run, of which a graph may have nothing.
        self._queue()
        replay = recorder.record(self._queue)
        # A graph's first launch may ask for memory. Between two pieces of one, rows of a lane would be committed in
        # some layers alone if there were none, so all of them are launched once over rows that are nobody's.
        replay()
        self._recorded, self._replay = self.results, replay
