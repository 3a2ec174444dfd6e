"""What launches cost here, measured when a model is loaded: the engine plans its windows by it."""

from __future__ import annotations

import statistics
from time import perf_counter

import numpy as np

from tensorfold.application.ports.target_model import (
    LaneWindow,
    ModelCosts,
    ProposeSpec,
    RoundBatch,
    Span,
    TargetModel,
)
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain

ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
REPEATS = 3
PROMPT = 256


def measure(model: TargetModel) -> ModelCosts:
    """Medians of a few launches of each row count, and of a prompt's rows; wall time, collected on the host."""
    limits = model.limits
    count = max(1, min(PROMPT, limits.context - limits.chain_width - 2))
    ids = np.random.default_rng(7).integers(0, limits.vocabulary, count + limits.chain_width + 1)
    lane = model.open(count + limits.chain_width + 1)
    prompt_ms = []
    for _ in range(2):  # the first call compiles
        model.close(lane)
        lane = model.open(count + limits.chain_width + 1)
        began = perf_counter()
        model.collect(model.prefill(lane, ids.astype(np.int64), Span(0, count)))
        prompt_ms.append((perf_counter() - began) * 1e3)
    windows = [
        chain(int(ids[count]), [int(token) for token in ids[count + 1 : count + rows]])
        for rows in ROWS
        if rows <= limits.chain_width
    ]
    times: list[list[float]] = [[] for _ in windows]
    # Row counts take turns: a few rounds of one row in a row, and the next would be queued ahead and waited for.
    for _ in range(1 + REPEATS):
        for window, took in zip(windows, times, strict=True):
            began = perf_counter()
            ticket = model.launch(RoundBatch((LaneWindow(lane, count, window, Sampling()),)))
            model.collect(ticket)
            took.append((perf_counter() - began) * 1e3)
            model.keep(ticket, [()])
    rows_ms = [(len(window), statistics.median(took[1:])) for window, took in zip(windows, times, strict=True)]
    head_ms = _head(model, lane, int(ids[count]))
    model.close(lane)
    return ModelCosts(tuple(rows_ms), prompt_ms[-1] / count, head_ms)


def _head(model: TargetModel, lane: int, pending: int) -> tuple[float, ...]:
    head = model.limits.head
    if head is None:
        return ()
    costs = []
    for depth in range(1, head.most + 1):
        times = []
        for _ in range(1 + REPEATS):
            began = perf_counter()
            model.propose([ProposeSpec(lane, pending, depth, Sampling())])
            times.append((perf_counter() - began) * 1e3)
        costs.append(statistics.median(times[1:]))
    return tuple(costs)
