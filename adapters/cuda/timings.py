"""What launches cost here, measured when a model is loaded: the engine plans its windows by it.

Whatever else the machine does only adds to a time, so of many the lower quartile counts. A round of one row is timed as
streams that go on a row at a time have it, the head behind the draws of rounds that are drafted one after another: in
both the next work may be queued before the draws are read.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from tensorfold.application.ports.target_model import (
    HeadLimits,
    Lane,
    LaneWindow,
    ModelCosts,
    ProposeSpec,
    RoundBatch,
    Span,
    TargetModel,
)
from tensorfold.domain.drafting.costs import levelled
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
DEPTHS = (1, 2, 4)
"""Depths at which a chain is timed, beside the deepest; it takes as long for every further draft."""
BLOCKS = (1, 3, 7)
"""Depths at which a block is run once more, so that its passes are captured for windows of any size."""
PROMPT = 256
WARM, TURNS = 3, 8
"""Rounds that compile, capture and become a habit; rounds that are timed."""


def measure(model: TargetModel) -> ModelCosts:
    """Times of a prompt's rows, of launches by rows, and of the head by depth; wall time, collected on the host."""
    limits = model.limits
    steps = (WARM + TURNS) * (2 + len(DEPTHS))
    count = max(1, min(PROMPT, limits.context - limits.chain_width - steps - 2))
    capacity = min(limits.context, count + limits.chain_width + steps + 1)
    ids = np.random.default_rng(7).integers(0, limits.vocabulary, count + limits.chain_width + 1).astype(np.int64)
    prompt_ms = []
    lane = model.open(capacity)
    for _ in range(2):  # the first call compiles
        model.close(lane)
        lane = model.open(capacity)
        began = perf_counter()
        model.collect(model.prefill(lane, ids, Span(0, count)))
        prompt_ms.append((perf_counter() - began) * 1e3)
    stream = _Stream(model, lane, count, capacity, [int(token) for token in ids[count:]])
    rows_ms = [(rows, stream.window_ms(rows)) for rows in ROWS if 1 < rows <= limits.chain_width]
    rows_ms.insert(0, (1, stream.serial_ms()))
    head_ms = () if limits.head is None else _head(stream, limits.head)
    model.close(lane)
    return ModelCosts(tuple(rows_ms), prompt_ms[-1] / count, head_ms)


@dataclass(slots=True)
class _Stream:
    """A lane that absorbed `at` tokens and goes on with `tokens`."""

    model: TargetModel
    lane: Lane
    at: int
    capacity: int
    tokens: list[int]

    def window_ms(self, rows: int) -> float:
        """A launch of so many rows, to its draws; none of them stays."""
        times = []
        for _ in range(1 + TURNS):
            began = perf_counter()
            self._round(rows, stays=False)
            times.append((perf_counter() - began) * 1e3)
        return typical(times[1:])

    def serial_ms(self) -> float:
        """A round of one row behind others of one row, each of which stays: from draws to draws."""
        times = []
        before = perf_counter()
        for _ in range(WARM + TURNS):
            self._round(1, stays=True)
            now = perf_counter()
            times.append((now - before) * 1e3)
            before = now
        return typical(times[WARM:])

    def head_ms(self, depth: int) -> float:
        """From the draws of a round with `depth` drafts, of which none lands, to the drafts of the next."""
        self.warm(depth)
        return typical([self._drafted(depth) for _ in range(TURNS)])

    def warm(self, depth: int) -> None:
        """Rounds with so many drafts, until they are a habit."""
        for _ in range(WARM):
            self._drafted(depth)

    def _drafted(self, depth: int) -> float:
        return self._round(1 + min(depth, self.model.limits.chain_width - 1), stays=True, depth=depth)

    def _round(self, rows: int, *, stays: bool, depth: int = 0) -> float:
        """One round; the milliseconds behind its draws. A lane that is full keeps nothing more."""
        rows = min(rows, self.capacity - self.at)
        window = chain(self.tokens[0], self.tokens[1:rows])
        ticket = self.model.launch(RoundBatch((LaneWindow(self.lane, self.at, window, Sampling()),)))
        (drawn,) = self.model.collect(ticket).tokens
        began = perf_counter()
        stays = stays and self.at + rows < self.capacity
        self.model.keep(ticket, [(0,) if stays else ()])
        if stays:
            self.at, self.tokens[0] = self.at + 1, drawn[0]
        if depth:
            self.model.propose([ProposeSpec(self.lane, self.tokens[0], depth, Sampling())])
        return (perf_counter() - began) * 1e3


def _head(stream: _Stream, head: HeadLimits) -> tuple[float, ...]:
    """The head's times by depth: a block takes one time, a chain one more for each draft."""
    if head.kind == "lattice":
        for depth in BLOCKS:
            stream.warm(min(depth, head.most))
        return (stream.head_ms(head.most),) * head.most
    depths = sorted({depth for depth in (*DEPTHS, head.most) if depth <= head.most})
    return between(depths, levelled([stream.head_ms(depth) for depth in depths]))


def typical(times: Sequence[float]) -> float:
    """The lower quartile."""
    return sorted(times)[len(times) // 4]


def between(depths: Sequence[int], times: Sequence[float]) -> tuple[float, ...]:
    """Times of every depth from 1 to the last of `depths`, on lines between those measured."""
    made = []
    for depth in range(1, depths[-1] + 1):
        right = bisect_left(depths, depth)
        if depths[right] == depth:
            made.append(times[right])
            continue
        left = right - 1
        share = (depth - depths[left]) / (depths[right] - depths[left])
        made.append(times[left] + share * (times[right] - times[left]))
    return tuple(made)
