"""Which models the proof on the card is run over: tiny checkpoints with every edge, and models of true geometry.

All are proved side by side, each in a process of its own: rounds of a proof are short, and the host decides their time.
"""

from __future__ import annotations

import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu_beside import FailedError, beside
from tests.benchmarks.gpu_proof import FAULTS, TURNS, Proved, cases, caught, crowd, prove, totals, wrong

Say = Callable[[str], None]
TINY = ("llama", "qwen3_5", "nemotron_h")
TRUE = ("qwen", "nemotron", "llama")
_STREAMS, _CONTEXT, _KEPT = 8, 1024, 24
_MOST_PROCESSES = 4
"""Processes of a family of tiny checkpoints, each with other weights and prompts, where there are cores for them."""
_TRUE_TURNS = 2
_UNTIL_S, _MOST_S = 170.0, 270.0
"""No further proof is begun behind the first, and what still runs behind the second is ended."""


@dataclass(slots=True)
class Outcome:
    """What was proved of each model; `caught` says of each planted fault whether it was, `eager` tokens compared."""

    proved: dict[str, Proved] = field(default_factory=dict)
    caught: dict[str, bool] = field(default_factory=dict)
    eager: int = 0
    eager_differences: int = 0

    def lacks(self, least: int) -> list[str]:
        """Everything that makes this no proof."""
        lacks = [f"{name}: {lack}" for name, one in self.proved.items() for lack in one.lacks()]
        total = totals(self.proved.values()).compared
        if total < least:
            lacks.append(f"{total:,} tokens were compared, at least {least:,} are needed")
        if not self.eager:
            lacks.append("nothing was compared between captured and uncaptured rounds")
        wanted = [f"{name} {fault}" for name in self.proved for fault in FAULTS]
        return lacks + [f"the planted fault {name!r} was not caught" for name in wanted if not self.caught.get(name)]

    def passed(self, least: int) -> bool:
        """Whether nothing differs and enough was seen."""
        return not self.lacks(least) and not totals(self.proved.values()).differences and not self.eager_differences

    def words(self, least: int) -> str:
        """Everything in one line."""
        total = totals(self.proved.values())
        found = [name for name, seen in self.caught.items() if seen]
        faults = f"planted faults caught: {', '.join(found) or 'none'} of {len(FAULTS) * len(self.proved)}; "
        lacks = self.lacks(least)
        return (
            f"{total.words(', '.join(self.proved))} (least {least:,}); captured against uncaptured {self.eager:,} "
            f"tokens, {self.eager_differences} differences; {faults}"
            f"{'proved' if self.passed(least) else 'FAILED: ' + '; '.join(lacks)}"
        )

    def figures(self) -> dict[str, Any]:
        """For the record."""
        return {
            "models": {name: asdict(one) for name, one in self.proved.items()},
            "caught": self.caught,
            "captured against uncaptured": {"tokens": self.eager, "differences": self.eager_differences},
            "company": "alone, 4 and 8 at once, half of them sampled",
            "record": "on, read-only, poisoned and emptied, temporary folders",
        }

    def take(self, name: str, done: Done | FailedError, say: Say) -> None:
        """Add what a process found of a model, or why it found nothing."""
        if isinstance(done, FailedError):
            say(f"{name} failed: {done}")
            done = Done(Proved(reasons=[f"a process failed: {str(done).strip().splitlines()[-1]}"]))
        self.proved[name] = totals([self.proved.get(name, Proved()), done.proved])
        self.caught |= {f"{name} {fault}": found for fault, found in done.caught.items()}
        self.eager, self.eager_differences = self.eager + done.eager, self.eager_differences + done.eager_differences
        say(f"{done.proved.words(name)}, {done.seconds:.0f} s, {done.loading:.0f} of them loading")
        for reason in done.proved.reasons:
            say(f"  {reason}")


@dataclass(frozen=True, slots=True)
class Task:
    """One process: a model by name, the folder of compiled kernels, tokens to compare, and whether faults are planted.

    `until` of the monotonic clock no further proof is begun.
    """

    name: str
    folder: str
    seed: int
    tokens: int
    until: float
    faults: bool = True
    number: int = 0


@dataclass(slots=True)
class Done:
    """What a process found."""

    proved: Proved = field(default_factory=Proved)
    caught: dict[str, bool] = field(default_factory=dict)
    eager: int = 0
    eager_differences: int = 0
    seconds: float = 0.0
    loading: float = 0.0


def processes() -> int:
    """Processes of each tiny family: as many as leave a core for each, at most four."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(_MOST_PROCESSES, cores // len(TINY)))


def tiny(folder: Path, seed: int, least: int, say: Say) -> Outcome:
    """Three families, each in several processes; the first of each is proved against faults and without graphs."""
    count = processes()
    tokens = -(-least // (count * len(TINY)))
    until = time.monotonic() + _UNTIL_S
    tasks = [
        Task(family, str(folder), seed + 1000 * number, tokens, until, faults=not number, number=number)
        for number in range(count)
        for family in TINY
    ]
    return _proved(_tiny, tasks, say)


def true_geometry(folder: Path, seed: int, least: int, say: Say) -> Outcome:
    """The three models of true geometry."""
    tokens, until = -(-least // len(TRUE)), time.monotonic() + _UNTIL_S
    return _proved(_true, [Task(name, str(folder), seed, tokens, until) for name in TRUE], say)


def _proved(work: Callable[[Task], Done], tasks: Sequence[Task], say: Say) -> Outcome:
    outcome = Outcome()
    for task, done in beside(work, tasks, _MOST_S):
        outcome.take(task.name, done, say)
    return outcome


def _tiny(task: Task) -> Done:
    from tests.benchmarks.gpu_planting import Wanted, loaded
    from tests.benchmarks.gpu_tiny import stored_tiny

    wanted = Wanted(streams=_STREAMS, context=_CONTEXT, kept=_KEPT)

    @contextmanager
    def model(home: Path) -> Iterator[Any]:
        stored = stored_tiny(home, task.name, task.seed // 1000 % 1000)
        with loaded(stored, f"tiny {task.name}", wanted, Path(task.folder), _silent) as found:
            yield found

    return _done(task, model)


def _true(task: Task) -> Done:
    from tests.benchmarks.gpu_planting import Wanted, true

    wanted = Wanted(streams=_STREAMS, context=_CONTEXT, kept=_KEPT)
    said = _Said(task.name)
    return _done(task, lambda home: true(task.name, wanted, Path(task.folder), said), said, turns=_TRUE_TURNS)


def _done(task: Task, model: Callable[[Path], Any], say: Say = lambda line: None, turns: int = TURNS) -> Done:
    """Everything that a process does with its model; what fails is a reason, and what was compared before it counts."""
    began = time.monotonic()
    done = Done()
    with tempfile.TemporaryDirectory(prefix="tensorfold-gpu-") as home, model(Path(home)) as found:
        done.loading = time.monotonic() - began
        try:
            prove(found, Path(home), task.seed, task.tokens, say, until=task.until, into=done.proved, turns=turns)
            if task.faults:
                checked(found, task.seed, done)
        except Exception as fault:
            say(traceback.format_exc())
            done.proved.reasons.append(f"{type(fault).__name__}: {fault}")
    done.seconds = time.monotonic() - began
    return done


def checked(model: Any, seed: int, done: Done) -> None:
    """Captured rounds against uncaptured ones, and which planted faults are noticed, by serial replies without graphs.

    What is wrong without a fault is added to what was proved.
    """
    from tests.benchmarks import gpu_planting

    known = cases(gpu_planting.eager(model), seed, _STREAMS)
    row = crowd(gpu_planting.headless(model), known, 4)
    done.eager, done.eager_differences = row.compared, row.differences
    done.proved.reasons += wrong(row)
    for fault in FAULTS:
        done.caught[fault] = caught(gpu_planting.faulty(model, fault), known)


class _Said:
    """Lines of one of several processes, with its name before them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, line: str) -> None:
        print(f"   {self._name}: {line}", flush=True)


def _silent(line: str) -> None: ...
