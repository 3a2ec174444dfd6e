"""Copies of a stream's own context on the demo: how much faster they make a repeating reply, and what looking costs.

Speed is a ratio within one run, the same request with drafts and without, and the tokens must be the same. The cost of
looking is measured where there is nothing to find: 8,000 ids of context without a repeated run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path

from tensorfold.application.replies import Ended, GenerationRequest, Landed
from tensorfold.application.scheduler import Scheduler
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.sampling import Sampling
from tensorfold.entrypoints.cli.opening import check, schedule
from tensorfold.entrypoints.cli.parser import parse
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import cache_folder, run_settings

LEAST_SPEEDUP = 2.0
MOST_US = 100.0
REPLY = 192
CONTEXT = 8000
TEXT = "The red cup is on the table and the old key is under the chair near the window.\n" * 10


def measured(scheduler: Scheduler, prompt: tuple[int, ...], *, draft: bool) -> tuple[list[int], float, Ended]:
    """A greedy reply of REPLY tokens: ids, decode seconds after the first token, and its end."""
    request = GenerationRequest(prompt, Sampling(), REPLY, ignore_eos=True, draft=draft)
    generation = scheduler.submit(request)
    ids: list[int] = []
    while isinstance(event := generation.next(600.0), Landed):
        ids += event.ids
    if not isinstance(event, Ended):
        raise RuntimeError(f"the reply did not end: {event}")
    return ids, event.stats.decode_s, event


def speedup(model: str) -> tuple[float, bool, str]:
    """How many times as fast the repeating reply decodes with copies, whether the tokens are equal, and the figures."""
    flags = parse(["verify", model])
    settings = run_settings(flags, {})
    container = Container(cache=cache_folder({}))
    checked = check(settings, container, lambda line: None)
    scheduler = schedule(checked, settings, container, lambda line: None)
    scheduler.start()
    try:
        scheduler.wait_ready()
        prompt = tuple(checked.tokenizer.encode(TEXT))
        measured(scheduler, prompt[:8], draft=False)
        serial, serial_s, _ = measured(scheduler, prompt, draft=False)
        copied, copied_s, end = measured(scheduler, prompt, draft=True)
    finally:
        scheduler.stop(30.0)
    rate = (len(serial) - 1) / serial_s, (len(copied) - 1) / copied_s
    figures = (
        f"{len(copied)} tokens at {rate[1]:.1f} tokens/s against {rate[0]:.1f} serially, {end.stats.rounds} rounds, "
        f"{end.stats.accepted} of {end.stats.drafted} drafts kept"
    )
    return serial_s / copied_s, serial == copied, figures


def looking_us() -> tuple[float, float]:
    """Median and mean microseconds a round of proposing and observing where nothing can be copied."""
    rng = random.Random(3)
    tokens = [rng.randrange(1 << 20) for _ in range(CONTEXT)]
    source = CopySourceFactory().open(tokens)
    source.propose(tokens, 15)
    spent = []
    for _ in range(3000):
        began = time.perf_counter()
        proposal = source.propose(tokens, 15)
        middle = time.perf_counter()
        tokens.append(rng.randrange(1 << 20))
        again = time.perf_counter()
        source.observe(None, 0, 0, tokens)
        spent.append(1e6 * (time.perf_counter() - again + middle - began))
        if proposal is not None:
            raise RuntimeError("something was found where nothing repeats")
    return statistics.median(spent), statistics.fmean(spent)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--require", action="store_true", help="fail when a least figure is missed")
    parser.add_argument("--model", default="demo", help="a model name or folder")
    flags = parser.parse_args()
    median, mean = looking_us()
    ratio, equal, figures = speedup(flags.model)
    missed = []
    if ratio < LEAST_SPEEDUP:
        missed.append(f"speedup under {LEAST_SPEEDUP:.1f}")
    if not equal:
        missed.append("the tokens differ")
    if max(median, mean) > MOST_US:
        missed.append(f"looking costs over {MOST_US:.0f} us")
    print(
        f"copies on {Path(flags.model).name}: {ratio:.2f} times as fast as serial (at least {LEAST_SPEEDUP:.1f}), "
        f"tokens {'equal' if equal else 'DIFFER'}: {figures}; nothing to copy at {CONTEXT} ids: median {median:.1f}, "
        f"mean {mean:.1f} us a round (at most {MOST_US:.0f}){'; MISSED: ' + ', '.join(missed) if missed else ''}"
    )
    return 1 if missed and flags.require else 0


if __name__ == "__main__":
    sys.exit(main())
