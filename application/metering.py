"""What replies took, as histograms, and how they ended: told by the scheduler, read by whoever reports.

One thread writes, any thread may read. A reading holds figures alone: nothing of a request but its times is kept.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from tensorfold.application.generation import Generation
from tensorfold.application.replies import ReplyStats

REPLY_EDGES = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper edges, in seconds, of what a whole reply takes."""
TOKEN_EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper edges, in seconds, of what one token takes."""
ENDINGS = ("stop", "length", "cancelled", "error")
_WHOLE = ("stop", "length")


@dataclass(frozen=True, slots=True)
class HistogramFigures:
    """How many observations lie in each bucket, the last of them past every edge, and their sum."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Observations by size. A value on an edge belongs below it."""

    __slots__ = ("_counts", "_edges", "_total")

    def __init__(self, edges: tuple[float, ...]) -> None:
        """`edges` grow."""
        self._edges = edges
        self._counts = [0] * (len(edges) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one value; a clock that went back counts as 0."""
        if value < 0.0:
            value = 0.0
        self._counts[bisect_left(self._edges, value)] += 1
        self._total += value

    def figures(self) -> HistogramFigures:
        """As it stands; while another thread observes, the sum may lag behind the counts by one value."""
        return HistogramFigures(self._edges, tuple(self._counts), self._total)


@dataclass(frozen=True, slots=True)
class MeterFigures:
    """Times of whole replies in seconds, and all replies by ending: one of ENDINGS each.

    `token` is a reply's mean time for a token after its first, `gap` the time between two rounds of one reply.
    """

    whole: HistogramFigures
    first: HistogramFigures
    token: HistogramFigures
    gap: HistogramFigures
    queue: HistogramFigures
    prefill: HistogramFigures
    decode: HistogramFigures
    endings: Mapping[str, int]


class Meter:
    """Told by the engine's thread alone: a few additions for each reply, and one for each round of a reply."""

    def __init__(self) -> None:
        self._whole, self._first = Histogram(REPLY_EDGES), Histogram(REPLY_EDGES)
        self._token, self._gap = Histogram(TOKEN_EDGES), Histogram(TOKEN_EDGES)
        self._queue, self._prefill = Histogram(REPLY_EDGES), Histogram(REPLY_EDGES)
        self._decode = Histogram(REPLY_EDGES)
        self._endings = dict.fromkeys(ENDINGS, 0)

    def done(self, generation: Generation, stats: ReplyStats | None, reason: str) -> None:
        """A request ended. Only whole replies are timed: one cut short says nothing of how long replies take."""
        self._endings[reason] = self._endings.get(reason, 0) + 1
        if stats is None or reason not in _WHOLE:
            return
        self._whole.observe(stats.ttft_s + stats.decode_s)
        self._first.observe(stats.ttft_s)
        self._queue.observe(stats.queue_s)
        self._prefill.observe(stats.prefill_s)
        self._decode.observe(stats.decode_s)
        if stats.completion_tokens > 1:
            self._token.observe(stats.decode_s / (stats.completion_tokens - 1))

    def landed(self, gap_s: float) -> None:
        """A reply landed tokens `gap_s` seconds after it landed some before."""
        self._gap.observe(gap_s)

    def figures(self) -> MeterFigures:
        """As they stand now."""
        return MeterFigures(
            self._whole.figures(),
            self._first.figures(),
            self._token.figures(),
            self._gap.figures(),
            self._queue.figures(),
            self._prefill.figures(),
            self._decode.figures(),
            self._endings.copy(),
        )
