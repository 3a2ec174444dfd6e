"""Where the time of a round goes: every kernel by name, how often it runs, and what it adds to the round.

Kernels start early and wait for the one before them, so most of the time in which one is busy is another's. What a
kernel adds is its end less the end of the one before it; that much adds up to the round. Needs torch and a card.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tensorfold.application.ports.target_model import LaneWindow, RoundBatch, Span
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain
from tests.benchmarks.gpu_engine import prompt_ids

ROWS, ROUNDS, BEHIND, SHOWN = (1, 8, 16, 64), 5, 2000, 12
PAUSE_US = 30.0
"""A longer gap between two kernels is the host's."""
Say = Callable[[str], None]
Kernels = dict[str, dict[str, float]]


def profile(model: Any, say: Say, rows: Sequence[int] = ROWS) -> dict[str, Any]:
    """Kernels of a round of each row count, all rows of which stay; no round is queued ahead."""
    from tests.benchmarks.gpu_planting import unhurried

    found: dict[str, Any] = {}
    for count in (count for count in rows if count <= model.limits.chain_width):
        kernels = per_round(_events(unhurried(model), count), ROUNDS)
        added = sum(one["us"] for one in kernels.values())
        found[str(count)] = kernels
        launches = sum(one["launches"] for one in kernels.values())
        say(f"a round of {count} rows: {added:.0f} us in {launches:.0f} launches")
        for name, one in list(kernels.items())[:SHOWN]:
            say(f"  {one['us']:8.1f} us ({one['busy us']:8.1f} busy) in {one['launches']:6.1f} of {name}")
    return {"by rows": found, "record": "off"}


def per_round(events: Iterable[tuple[str, float, float]], rounds: int) -> Kernels:
    """Launches of each kernel, what it adds and how long it is busy, in microseconds a round, most first.

    Events are (name, start, end) of so many rounds. Behind a pause of the card, as between two rounds, a kernel adds
    all of its time.
    """
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
    before = float("-inf")
    for name, start, end in sorted(events, key=lambda event: event[2]):
        one = sums[name[:60]]
        one[0] += 1
        one[1] += end - (start if start - before > PAUSE_US else before)
        one[2] += end - start
        before = end
    ordered = sorted(sums.items(), key=lambda each: -each[1][1])
    return {
        name: {"launches": count / rounds, "us": round(added / rounds, 2), "busy us": round(busy / rounds, 2)}
        for name, (count, added, busy) in ordered
    }


def _events(model: Any, rows: int) -> list[tuple[str, float, float]]:
    import torch
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiled

    vocabulary, behind = model.limits.vocabulary, min(BEHIND, model.limits.context // 2)
    lane = model.open(behind + rows * (ROUNDS + 3) + 1)
    model.collect(model.prefill(lane, np.array(prompt_ids(vocabulary, behind, rows), np.int64), Span(0, behind)))
    at = behind

    def round_() -> None:
        nonlocal at
        tokens = prompt_ids(vocabulary, rows, 700 + at)
        ticket = model.launch(RoundBatch((LaneWindow(lane, at, chain(tokens[0], tokens[1:]), Sampling()),)))
        model.collect(ticket)
        model.keep(ticket, [tuple(range(rows))])
        at += rows

    for _ in range(2):
        round_()
    with profiled(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(ROUNDS):
            round_()
        torch.cuda.synchronize()
    model.close(lane)
    spans = [(one.name, one.time_range) for one in seen.events() if _on_card(one)]
    return [(name, float(span.start), float(span.end)) for name, span in spans]


def _on_card(event: Any) -> bool:
    return str(event.device_type).endswith("CUDA")
