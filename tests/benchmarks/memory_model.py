"""Memory as it is reckoned against memory as it is taken: the demo's peak at several contexts and numbers of streams.

Each cell runs in a process of its own, with every allocation of Python and numpy counted from before the load on: on a
CPU those hold weights, lanes and work. Every stream fills its whole lane; the peak after the load is compared with what
was planned. What the process holds in all, garbage of the load included, is told beside it. Then 100,000 random
schedules are played on figures alone, and ten starts must choose one window.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import resource
import subprocess
import sys
import time
import tracemalloc
from dataclasses import replace
from typing import Any

from tests.benchmarks.memory_schedules import Tally, play

CELLS = ((1, 512), (1, 2048), (1, 4096), (2, 2048), (4, 1024))
"""Streams, and tokens of each: prompt and reply."""
MOST_OFF = 0.10
SCHEDULES = 100_000
STARTS = 10
REPLY = 128
"""Tokens of each reply, without drafts: so long that the first stream still decodes when the last prompt is read."""
MIB = 1 << 20


def run_cell(model: str, streams: int, tokens: int) -> dict[str, int]:
    """Predicted and measured bytes of one cell, in this process."""
    from tensorfold.application.replies import Ended, GenerationRequest, Landed
    from tensorfold.domain.sampling import Sampling

    checked, scheduler = _opened(model)
    tracemalloc.start()
    scheduler.start()
    try:
        scheduler.wait_ready()
        gc.collect()
        loaded, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        ids = [7 + at % 1000 for at in range(tokens - REPLY)]
        prompts = [(stream, *ids[1:]) for stream in range(streams)]
        made = [
            scheduler.submit(GenerationRequest(p, Sampling(), REPLY, ignore_eos=True, draft=False)) for p in prompts
        ]
        for generation in made:
            while isinstance(event := generation.next(1800.0), Landed):
                pass
            assert isinstance(event, Ended), event
        _, peak = tracemalloc.get_traced_memory()
    finally:
        scheduler.stop(30.0)
    plan = checked.memory.plan
    predicted = plan.footprint.weights + streams * plan.lane(tokens, tokens) + plan.work(tokens)
    return {
        "predicted": predicted,
        "peak": peak,
        "weights": plan.footprint.weights,
        "loaded": loaded,
        "process": _process(),
    }


def run_start(model: str) -> int:
    """The window that a start chooses; nothing is loaded."""
    checked, _ = _opened(model)
    return int(checked.described.context)


def _opened(model: str) -> Any:
    from tensorfold.entrypoints.cli.opening import check, schedule
    from tensorfold.entrypoints.cli.parser import parse
    from tensorfold.entrypoints.container import Container
    from tensorfold.entrypoints.settings import cache_folder, run_settings

    settings = run_settings(parse(["verify", model]), {})
    # No rounds beyond the one that every slice of a prompt is followed by: lanes are to be full at the same time.
    settings = replace(settings, engine=replace(settings.engine, decode_share=0.0))
    container = Container(cache=cache_folder({}))
    checked = check(settings, container, lambda line: None)
    return checked, schedule(checked, settings, container, lambda line: None)


def _process() -> int:
    """The most bytes that this process held in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _child(*words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.memory_model", *words], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def cells(model: str) -> float:
    """Every cell, told; the largest part by which a prediction is off."""
    worst = 0.0
    for streams, tokens in CELLS:
        found = _child("--model", model, "--cell", str(streams), str(tokens))
        off = found["predicted"] / found["peak"] - 1
        worst = max(worst, abs(off))
        print(
            f"{streams} x {tokens:5} tokens: predicted {found['predicted'] / MIB:7.1f} MiB, peak "
            f"{found['peak'] / MIB:7.1f} MiB, off by {off:+.1%} (weights {found['weights'] / MIB:.1f} MiB, "
            f"{found['loaded'] / MIB:.1f} MiB after the load; the process held up to {found['process'] / MIB:.0f} MiB)",
            flush=True,
        )
    return worst


def schedules(count: int) -> Tally:
    """So many random schedules over all processors."""
    workers = multiprocessing.get_context("spawn").Pool()
    step = 1000
    total = Tally()
    with workers:
        for tally in workers.imap_unordered(_some, range(0, count, step)):
            for name in ("schedules", "admitted", "refused", "waited", "paused", "dropped", "ended", "over", "stuck"):
                setattr(total, name, getattr(total, name) + getattr(tally, name))
            total.worst = max(total.worst, tally.worst)
            total.notes += tally.notes[:3]
    return total


def _some(first: int) -> Tally:
    tally = Tally()
    for seed in range(first, first + 1000):
        play(seed, tally)
    return tally


def main() -> int:
    """Print the figures; 1 when a least one is required and missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--cell", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--start", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.cell:
        print(json.dumps(run_cell(flags.model, *flags.cell)))
        return 0
    if flags.start:
        print(run_start(flags.model))
        return 0
    began = time.monotonic()
    worst = cells(flags.model)
    windows = {_child("--model", flags.model, "--start") for _ in range(STARTS)}
    tally = schedules(flags.schedules)
    for note in tally.notes:
        print(note)
    good = worst <= MOST_OFF and len(windows) == 1 and not (tally.over or tally.stuck or tally.ended)
    print(
        f"memory model: {'good' if good else 'MISSED'}: off by at most {worst:.1%} (limit {MOST_OFF:.0%}) in "
        f"{len(CELLS)} cells; windows of {STARTS} starts {sorted(windows)}; {tally.schedules} schedules, "
        f"{tally.over} over, {tally.stuck} stuck, {tally.admitted} admitted, {tally.paused} pauses, {tally.dropped} "
        f"lanes given up, {tally.ended} ended, fullest {tally.worst:.1%}; {time.monotonic() - began:.0f} s"
    )
    return 0 if good or not flags.require else 1


if __name__ == "__main__":
    sys.exit(main())
