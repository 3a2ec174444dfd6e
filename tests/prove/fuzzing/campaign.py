"""Tries inputs in order at two servers, one open and one with a key, and keeps what was found and what memory did."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.prove.fuzzing.arena import KEY, Arena, Problem, arena
from tests.prove.fuzzing.inputs import Input
from tests.prove.fuzzing.making import closed, made

SETTLE_EVERY = 200
TIMES = 3
"""How often an input is tried again: only what is slow each time is slow, and not the machine."""
MOST_GROWTH, MOST_OBJECTS = 8 << 20, 2000
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """A failing input; `alone` tells that it fails without those before it too."""

    number: int
    tried: Input
    problem: Problem
    alone: bool


@dataclass
class Report:
    """What a run of inputs came to. `memory` and `objects` are bytes of the process and live objects at each look."""

    tried: int = 0
    replies: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    slow_once: int = 0
    memory: list[int] = field(default_factory=list)
    objects: list[int] = field(default_factory=list)

    def misses(self) -> list[str]:
        """What is wrong; empty when it holds."""
        lines = [f"input {each.number}: {each.problem.kind}: {each.problem.detail}" for each in self.found]
        if growth(self.memory) > MOST_GROWTH:
            lines.append(f"memory grew by {growth(self.memory) / MIB:.1f} MiB, at most {MOST_GROWTH / MIB:.0f} may be")
        if growth(self.objects) > MOST_OBJECTS:
            lines.append(f"{growth(self.objects)} objects more in the end, at most {MOST_OBJECTS} may be")
        return lines


def growth(looks: Sequence[int]) -> int:
    """By how much the least of the last quarter lies above that of the one before; the first half is to warm up."""
    quarter = len(looks) // 4
    return min(looks[-quarter:]) - min(looks[-2 * quarter : -quarter]) if quarter else 0


class Pair:
    """Both servers."""

    def __init__(self, open_one: Arena, closed_one: Arena) -> None:
        self._arenas = (open_one, closed_one)

    def play(self, tried: Input, *, at_closed: bool) -> Problem | None:
        """One input, and the good one after it."""
        return self._arenas[at_closed].play(tried)

    def settle(self) -> Problem | None:
        """Look at both when nothing runs."""
        first, second = (each.settle() for each in self._arenas)
        return first or second

    @property
    def compared(self) -> int:
        """Replies that were compared with serial ones."""
        return sum(each.compared for each in self._arenas)


@contextmanager
def pair() -> Iterator[Pair]:
    """Two servers, stopped in the end."""
    with ExitStack() as stack:
        yield Pair(stack.enter_context(arena()), stack.enter_context(arena(KEY)))


def fails(tried: Input, *, at_closed: bool, times: int = 1) -> Problem | None:
    """What an input comes to alone, at a new server: its problem when it has one each time."""
    found = None
    for _ in range(times):
        with arena(KEY if at_closed else None) as server:
            found = server.play(tried) or server.settle()
        if found is None:
            return None
    return found


def same_as(found: Found) -> Callable[[Input], bool]:
    """Whether an input fails in the way that one did."""

    def same(tried: Input) -> bool:
        problem = fails(tried, at_closed=closed(found.number))
        return problem is not None and problem.kind == found.problem.kind

    return same


def run(seed: int, numbers: Sequence[int], mark: Callable[[int], None] = lambda number: None) -> Report:
    """Try inputs until one fails. `mark` is told the number of each before it is tried."""
    report = Report()
    with pair() as servers:
        for number in numbers:
            mark(number)
            kind, tried = made(seed, number)
            report.tried += 1
            report.kinds[kind] += 1
            problem = servers.play(tried, at_closed=closed(number))
            if problem is None and (report.tried % SETTLE_EVERY == 0 or number == numbers[-1]):
                problem = servers.settle()
                _look(report)
            if problem is not None and _stands(problem, tried, number, report):
                break
        report.replies = servers.compared
    return report


def _stands(problem: Problem, tried: Input, number: int, report: Report) -> bool:
    """Note what failed; what was slow only once is counted, as a busy machine is slow too."""
    again = fails(tried, at_closed=closed(number), times=TIMES)
    if problem.kind == "slow" and again is None:
        report.slow_once += 1
        return False
    report.found.append(Found(number, tried, again or problem, again is not None))
    return True


def _look(report: Report) -> None:
    """Note what is held once what is free was given back."""
    gc.collect()
    report.objects.append(len(gc.get_objects()))
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        report.memory.append(pages * os.sysconf("SC_PAGE_SIZE"))
