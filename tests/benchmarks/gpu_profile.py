"""Where the time of a round goes: every kernel by name, how often it runs, and how long the card is busy with it.

Under the profiler no kernel overlaps another, so the sum is more than a round takes. Needs torch and a card.
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

ROWS, ROUNDS, BEHIND, SHOWN = (1, 8), 5, 2000, 12
Say = Callable[[str], None]
Kernels = dict[str, dict[str, float]]


def profile(model: Any, say: Say, rows: Sequence[int] = ROWS) -> dict[str, Any]:
    """Kernels of a round of each row count, all rows of which stay; no round is queued ahead."""
    from tests.benchmarks.gpu_planting import unhurried

    found: dict[str, Any] = {}
    for count in rows:
        kernels = per_round(_events(unhurried(model), count), ROUNDS)
        busy = sum(one["us"] for one in kernels.values())
        found[str(count)] = kernels
        launches = sum(one["launches"] for one in kernels.values())
        say(f"a round of {count} rows: {busy:.0f} us busy in {launches:.0f} launches")
        for name, one in list(kernels.items())[:SHOWN]:
            say(f"  {one['us']:8.1f} us in {one['launches']:6.1f} of {name}")
    return {"by rows": found, "record": "off"}


def per_round(events: Iterable[tuple[str, float]], rounds: int) -> Kernels:
    """Launches and busy microseconds of each kernel, the busiest first, of events (name, us) of so many rounds."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for name, took in events:
        sums[name[:60]][0] += 1
        sums[name[:60]][1] += took
    ordered = sorted(sums.items(), key=lambda one: -one[1][1])
    return {name: {"launches": count / rounds, "us": round(took / rounds, 2)} for name, (count, took) in ordered}


def _events(model: Any, rows: int) -> list[tuple[str, float]]:
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
    return [(one.name, float(one.time_range.elapsed_us())) for one in seen.events() if _on_card(one)]


def _on_card(event: Any) -> bool:
    return str(event.device_type).endswith("CUDA")
