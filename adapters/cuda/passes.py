"""One pass of a row count: its control block, the decoder and the draws, queued launch by launch or as one graph.

The graph's key is the row count alone. A graph is what its first, ordinary run queued, so both have the same kernels;
results lie in the same tensors at every replay and hold until the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

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


class Pass:
    """Rows of one count. `logits` float32 [R, V], `tokens` int32 [R] and `taps` are those of the last run."""

    def __init__(
        self,
        decoder: Decoder,
        sampler: Sampler,
        control: ControlBlock,
        taps: Collection[int],
        pool: Callable[[], Any],
        *,
        graphs: bool,
    ) -> None:
        self._decoder, self._sampler, self._control, self._taps = decoder, sampler, control, taps
        self._pool, self._graphs = pool, graphs
        self._graph: Any = None
        self.logits: Tensor = None
        self.hidden: Tensor = None
        self.tokens: Tensor = None
        self.taps: Taps = {}

    @property
    def captured(self) -> bool:
        """Whether there is a graph."""
        return self._graph is not None

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
        if self._graphs and self._graph is None:
            self._capture(book)
        self._control.send(planned, book)
        if drawn is not None:
            self._control.rows.ids[: len(drawn)].copy_(drawn)
        self._sampler.send(draws)
        if self._graph is None:
            self._queue()
        else:
            self._graph.replay()

    def eager(self, planned: Sequence[PlannedRows], draws: Sequence[RowDraw | None], book: LaneBook) -> None:
        """The same without a graph, results in tensors of their own."""
        self._control.send(planned, book)
        self._sampler.send(draws)
        self._queue()

    def _queue(self) -> None:
        self.logits, self.hidden, self.taps = self._decoder.decode(self._control.rows, self._taps)
        self.tokens = self._sampler.draw(self.logits)

    def _capture(self, book: LaneBook) -> None:
        """Make the graph; what runs meanwhile are rows that are nobody's, since steps that commit count twice."""
        self._control.send((), book)
        self._sampler.send([None] * self._control.rows.count)
        # Kernels compile and workspaces grow in an ordinary run, of which a graph may have nothing.
        self._queue()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool()):
            self._queue()
        self._graph = graph
