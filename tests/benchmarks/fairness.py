"""Who waits for whom, by a clock that the model's calls move: short requests, shares, the background, equal prompts.

`--require` exits with 1 when a short request's first token does not come within two slices of a long prompt, whenever
it arrives; when replies beside a prompt get more or less than their share by over a round and a slice; when a request
in the background does not yield, or its reply is not the one it has alone; or when equal prompts are read twice.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from typing import Any

from tensorfold.application.replies import Landed
from tensorfold.application.settings import EngineSettings
from tests.application.house import idle, read
from tests.application.prompt_house import fresh, keeping, model, request, words
from tests.application.test_fairness import Stepped
from tests.fakes.clock import FakeClock

SLICE = 64
"""Ids of a slice, as on MLX; 256 are the most that a promise allows."""
MOST_SLICES = 2
LAUNCH_S, ROW_S = 0.05, 0.001
SHARES = (0.1, 0.25, 0.5, 1.0)
LONG, SHORT = 4000, 40


def prompt(seed: int, count: int) -> list[int]:
    """Made-up ids."""
    return words(random.Random(seed), count)


def stepped() -> tuple[Stepped, FakeClock]:
    """A model whose calls take time of a clock of its own."""
    clock = FakeClock()
    return Stepped(model(prefill_slice=SLICE), clock, LAUNCH_S, ROW_S), clock


def slices_waited(at: int) -> int:
    """Slices read between a short request's arrival, behind the `at`-th call, and its first token."""
    target, clock = stepped()
    with keeping(target, 0, clock=clock, settings=EngineSettings(parallel=4)) as server:
        submitted: list[Any] = []

        def arrive() -> None:
            if len(target.calls) == at:
                submitted.append(server.scheduler.submit(request(prompt(2, SHORT), 3)))

        target.on_call = arrive
        read(server.scheduler.submit(request(prompt(1, LONG), 2)))
        read(submitted[0])
    after = [kind for kind, _, _ in target.calls[at:]]
    return after.index("round")


def share_missed(share: float) -> float:
    """How far replies were from their share of the time while a long prompt was read, in rounds."""
    target, clock = stepped()
    with keeping(target, 0, clock=clock, settings=EngineSettings(parallel=2, decode_share=share)) as server:
        reply = server.scheduler.submit(request(prompt(2, 5), 3000, draft=False))
        assert isinstance(reply.next(30.0), Landed)
        long = server.scheduler.submit(request(prompt(1, LONG), 1))
        read(long)
        reply.cancel()
        read(reply)
    slices = [at for at, call in enumerate(target.calls) if call[0] == "slice"][1:]
    during = target.calls[slices[0] : slices[-1] + 1]
    spent = sum(took for kind, _, took in during if kind == "round")
    owed = share * sum(took for kind, _, took in during if kind == "slice")
    return abs(spent - owed) / (LAUNCH_S + share * SLICE * ROW_S)


def yields() -> tuple[int, int, int]:
    """Times that a request in the background yielded, of how often it should, and replies that differ."""
    slow, others = prompt(1, 300), [prompt(seed, 20) for seed in range(2, 8)]
    expected = [one.ids for one in fresh([slow, *others], tokens=40, prefill_slice=SLICE)]
    target, clock = stepped()
    with keeping(target, clock=clock, settings=EngineSettings(parallel=1)) as server:
        waiting, submitted = list(others), list[Any]()

        def arrive() -> None:
            at, alone = len(target.calls), server.scheduler.loads()[2] == 0
            if waiting and at >= 24 and at % 5 == 0 and alone:
                submitted.append(server.scheduler.submit(request(waiting.pop(0), 40)))

        target.on_call = arrive
        got = [read(server.scheduler.submit(request(slow, 40, background=True))).ids]
        got += [read(generation).ids for generation in submitted]
        idle(server.scheduler)
        yielded = server.scheduler.counters.preempted
    return yielded, len(submitted), sum(one != wanted for one, wanted in zip(got, expected, strict=False))


def read_twice(streams: int) -> float:
    """How often the ids of one prompt were read for so many equal requests at once; and their replies are one."""
    target, clock = stepped()
    asked = prompt(3, 1000)
    with keeping(target, clock=clock, settings=EngineSettings(parallel=streams)) as server:
        got = [read(g).ids for g in [server.scheduler.submit(request(asked, 20)) for _ in range(streams)]]
        filled = server.filled
    assert all(ids == got[0] for ids in got)
    return filled / (len(asked) - 1)


def main() -> int:
    """Print the figures; 1 when a least one is required and missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--require", action="store_true")
    flags = parser.parse_args()
    began = time.monotonic()
    waited = [slices_waited(at) for at in range(1, 41)]
    missed = {share: share_missed(share) for share in SHARES}
    for share, rounds in missed.items():
        print(f"share {share:g}: off by {rounds:.2f} of a round and a slice")
    yielded, due, differ = yields()
    twice = read_twice(4)
    good = max(waited) <= MOST_SLICES and max(missed.values()) <= 1.0 and yielded == due > 0 and not differ
    good = good and twice < 1.1
    print(
        f"fairness: {'good' if good else 'MISSED'}: a short request's first token after at most {max(waited)} slices "
        f"of {SLICE} ids (limit {MOST_SLICES}) in {len(waited)} arrivals; shares off by at most "
        f"{max(missed.values()):.2f} of a round and a slice; the background yielded {yielded} times of {due}, {differ} "
        f"replies differ; four equal prompts at once read {twice:.2f} times; {time.monotonic() - began:.0f} s"
    )
    return 0 if good or not flags.require else 1


if __name__ == "__main__":
    sys.exit(main())
