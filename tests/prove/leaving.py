"""Whoever leaves, fails or hangs costs nobody else anything: a thousand departures, faults everywhere, wedges.

Everything runs through the real server over the hash model, whose replies are known beforehand. With `--demo` a real
model reads a 2,000-id prompt while its health is watched.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tensorfold.application.settings import EngineSettings
from tests.end_to_end import crowd, fault_scenes, wedges
from tests.end_to_end.full_queue import overflow
from tests.end_to_end.long_prompt import watch_demo

MOST_PAST_COST_S = 5.0
LEAST_SHARE = 0.05
PROMPT_IDS = 2000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proof; 0 when it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=1000, help="clients that leave; a tenth as many stay")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--demo", action="store_true", help="watch the demo's health over a long prompt instead")
    flags = parser.parse_args(arguments)
    return demo() if flags.demo else leaving(flags.clients, flags.seed)


def leaving(clients: int, seed: int | None) -> int:
    """Departures, a full queue, faults and wedges."""
    seed = seed if seed is not None else random.SystemRandom().getrandbits(32)
    began = time.monotonic()
    print(f"leaving: seed {seed}", flush=True)
    seen = crowd.run(clients, max(1, clients // 10), seed)
    missed = seen.misses(int(LEAST_SHARE * clients))
    print(f"crowd: {seen.figures()}", flush=True)
    storm = crowd.run(clients // 4, clients // 4, seed, storm=True)
    missed += [f"in the storm: {line}" for line in storm.misses(1)]
    print(f"storm: {storm.struck} faults, {storm.failed} replies ended in an error; {storm.figures()}", flush=True)
    full = overflow(queue=8, beyond=12)
    missed += full.misses()
    print(f"queue: {full.figures()}", flush=True)
    played = [fault_scenes.play(scene) for scene in fault_scenes.scenes()]
    missed += [line for outcome in played for line in outcome.misses()]
    failed, due = sum(outcome.failed for outcome in played), sum(outcome.scene.ends for outcome in played)
    print(
        f"faults: {len(played)} scenes under {fault_scenes.STREAMS} streams, {failed} requests ended, {due} should",
        flush=True,
    )
    wedged = [wedges.play(site, EngineSettings()) for site in wedges.SITES]
    missed += [line for wedge in wedged for line in wedge.wrong]
    late = max(wedged, key=lambda wedge: wedge.past_cost_s)
    print(f"wedges: {', '.join(f'{wedge.site} {wedge.past_cost_s:.2f} s' for wedge in wedged)}", flush=True)
    if late.past_cost_s > MOST_PAST_COST_S:
        missed.append(f"health turned red {late.past_cost_s:.2f} s past the measured cost of {late.site}")
    for line in missed:
        print(f"  - {line}")
    print(
        f"leaving: {seen.left} clients left and {seen.stayed} stayed, {len(seen.wrong)} replies changed, {seen.lanes} "
        f"lanes and {len(seen.residue)} threads, descriptors or processes left; a storm of {storm.struck} faults "
        f"changed {len(storm.wrong)} replies; {full.refused} refused by a full queue; "
        f"{len(played)} faults ended {failed} requests of {due}; {len(wedged)} wedges turned health red at most "
        f"{late.past_cost_s:.2f} s past the call's cost (at most {MOST_PAST_COST_S:.0f}) and green again; "
        f"seed {seed}, {time.monotonic() - began:.0f} s{'; MISSED' if missed else ''}"
    )
    return 1 if missed else 0


def demo() -> int:
    """A long prompt on the demo never turns its health red."""
    watched = watch_demo(PROMPT_IDS)
    for line in watched.misses():
        print(f"  - {line}")
    print(f"leaving --demo: {watched.figures()}{'; MISSED' if watched.misses() else ''}")
    return 1 if watched.misses() else 0


if __name__ == "__main__":
    sys.exit(main())
