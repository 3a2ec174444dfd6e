"""Fuzzing over HTTP: damaged bytes and bodies at a whole server, each followed by a request whose reply must be right.

Input N of a seed is the same everywhere. A failing one is made small and printed as a command that sends it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any

from tests.prove.fuzzing.campaign import MIB, Found, Report, fails, growth, run, same_as
from tests.prove.fuzzing.inputs import Input, from_text
from tests.prove.fuzzing.making import closed
from tests.prove.fuzzing.minimise import Minimiser

LONGEST_COMMAND = 4000
CLOSED = "--closed"


@dataclass(frozen=True, slots=True)
class Share:
    """What process `index` tries: every `step`th input from `first` on, below `end`."""

    index: int
    seed: int
    first: int
    end: int
    step: int


class DiedError(Exception):
    """A process died, and the servers with it; `numbers` are the inputs that were tried just then."""

    def __init__(self, numbers: Sequence[int]) -> None:
        super().__init__(f"a process died while the inputs {list(numbers)} were tried")
        self.numbers = numbers


def prove(seed: int, first: int, inputs: int, processes: int) -> list[Report]:
    """Each process's report. Raises DiedError."""
    count = max(1, min(processes, inputs))
    shares = [Share(at, seed, first + at, first + inputs, count) for at in range(count)]
    context = multiprocessing.get_context("spawn")
    numbers = context.Array("q", count)
    try:
        with ProcessPoolExecutor(count, context, _begin, (numbers,)) as pool:
            return list(pool.map(_work, shares))
    except BrokenProcessPool:
        raise DiedError(numbers[:]) from None


def _begin(numbers: Any) -> None:
    global _numbers
    _numbers = numbers
    faulthandler.enable()


def _work(share: Share) -> Report:
    def mark(number: int) -> None:
        _numbers[share.index] = number

    return run(share.seed, range(share.first, share.end, share.step), mark)


_numbers: Any = None
"""The input that each process tries, where the one that started them can see it."""


def command(found: Found, seed: int) -> str:
    """How to see a failure again."""
    base = "python -m tests.prove.fuzz"
    if not found.alone:
        return f"{base} --seed {seed} --first {max(0, found.number - 1000)} --inputs 1001 --processes 1"
    small = Minimiser(same_as(found)).shrunk(found.tried).as_text()
    if len(small) > LONGEST_COMMAND:
        return f"{base} --seed {seed} --first {found.number} --inputs 1"
    return f"{base}{f' {CLOSED}' if closed(found.number) else ''} --replay {shlex.quote(small)}"


def replay(tried: Input, *, at_closed: bool) -> int:
    """Send one input and say what came of it."""
    problem = fails(tried, at_closed=at_closed)
    print("nothing wrong" if problem is None else f"{problem.kind}: {problem.detail}")
    return 0 if problem is None else 1


def figures(reports: Sequence[Report]) -> str:
    """What was tried and seen, in one line."""
    kinds: Counter[str] = sum((report.kinds for report in reports), Counter())
    tried = ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    return (
        f"{kinds.total():,} inputs ({tried}), {sum(len(report.found) for report in reports)} failed, each next request "
        f"was served; {sum(report.replies for report in reports):,} replies equal serial ones, "
        f"{sum(report.slow_once for report in reports)} slow once and not again, "
        f"memory grew by {max(growth(report.memory) for report in reports) / MIB:.1f} MiB"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the proof; 0 when it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--replay", metavar="INPUT", help="send one input, as this command prints it")
    parser.add_argument(CLOSED, action="store_true", help="replay at the server that asks for a key")
    flags = parser.parse_args(arguments)
    if flags.replay is not None:
        return replay(from_text(flags.replay), at_closed=flags.closed)
    seed = flags.seed if flags.seed is not None else random.SystemRandom().getrandbits(32)
    print(f"fuzzing: seed {seed}", flush=True)
    began = time.monotonic()
    try:
        reports = prove(seed, flags.first, flags.inputs, flags.processes)
    except DiedError as died:
        print(f"fuzz: {died}, seed {seed}; MISSED")
        return 1
    missed = [line for report in reports for line in report.misses()]
    for line in missed:
        print(f"  - {line}")
    for found in (found for report in reports for found in report.found):
        print(f"    {command(found, seed)}", flush=True)
    print(f"fuzz: {figures(reports)}, seed {seed}, {time.monotonic() - began:.0f} s{'; MISSED' if missed else ''}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
