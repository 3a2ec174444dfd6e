"""Which models the proof on the card is run over: tiny checkpoints with every edge, and models of true geometry.

Families of tiny checkpoints are proved side by side, each in a process of its own; a model of true geometry has the
card to itself.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.benchmarks.gpu_proof import FAULTS, Proved, caught, prove, same, totals

Say = Callable[[str], None]
TINY = ("llama", "qwen3_5", "nemotron_h")
_TRUE = ("llama", "nemotron", "qwen")
_STREAMS, _CONTEXT, _KEPT = 8, 1024, 24


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
        total = totals(self.proved).compared
        if total < least:
            lacks.append(f"{total:,} tokens were compared, at least {least:,} are needed")
        if not self.eager:
            lacks.append("nothing was compared between captured and uncaptured rounds")
        return lacks + [
            f"the planted fault {name!r} was not caught" for name, found in self.caught.items() if not found
        ]

    def passed(self, least: int) -> bool:
        """Whether nothing differs and enough was seen."""
        return not self.lacks(least) and not totals(self.proved).differences and not self.eager_differences

    def words(self, least: int) -> str:
        """Everything in one line."""
        total = totals(self.proved)
        found = [name for name, seen in self.caught.items() if seen]
        faults = f"planted faults caught: {', '.join(found) or 'none'} of {len(self.caught)}; " if self.caught else ""
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
            "record": "on, read-only, poisoned and emptied, temporary folders",
        }


def tiny(folder: Path, seed: int, least: int, say: Say) -> Outcome:
    """Three families side by side."""
    outcome = Outcome()
    tasks = [(family, str(folder), seed, -(-least // len(TINY))) for family in TINY]
    with multiprocessing.get_context("spawn").Pool(len(tasks), maxtasksperchild=1) as pool:
        for name, proved, faults, eager, differences in pool.imap_unordered(_tiny, tasks):
            outcome.proved[name] = proved
            outcome.caught |= {f"{name} {fault}": found for fault, found in faults.items()}
            outcome.eager, outcome.eager_differences = outcome.eager + eager, outcome.eager_differences + differences
            say(proved.words(name))
            for reason in proved.reasons:
                say(f"  {reason}")
    return outcome


def _tiny(task: tuple[str, str, int, int]) -> tuple[str, Proved, dict[str, bool], int, int]:
    from tests.benchmarks.gpu_planting import Wanted, loaded
    from tests.benchmarks.gpu_tiny import stored_tiny

    family, folder, seed, tokens = task
    wanted = Wanted(streams=_STREAMS, context=_CONTEXT, kept=_KEPT)
    with tempfile.TemporaryDirectory(prefix="tensorfold-gpu-") as home:
        stored = stored_tiny(Path(home), family, seed % 1000)
        with loaded(stored, f"tiny {family}", wanted, Path(folder), _silent) as model:
            proved = prove(model, Path(home), seed, tokens)
            eager, faults = _checked(model, seed)
    return family, proved, faults, eager[0], eager[1]


def _checked(model: Any, seed: int) -> tuple[tuple[int, int], dict[str, bool]]:
    """Captured rounds against uncaptured ones: tokens compared and differing; and which planted faults were caught."""
    from tests.benchmarks import gpu_planting

    headless = gpu_planting.headless(model)
    row = same(headless, gpu_planting.eager(model), seed)
    faults = {fault: caught(gpu_planting.faulty(model, fault), seed) for fault in FAULTS}
    return (row.compared, row.differences), faults


def true_geometry(folder: Path, seed: int, least: int, say: Say) -> Outcome:
    """The three models of true geometry, one after another."""
    from tests.benchmarks.gpu_planting import Wanted, true

    outcome = Outcome()
    wanted = Wanted(streams=_STREAMS, context=_CONTEXT, kept=_KEPT)
    for name in _TRUE:
        with tempfile.TemporaryDirectory(prefix="tensorfold-gpu-") as home, true(name, wanted, folder, say) as model:
            left = len(_TRUE) - len(outcome.proved)
            wanting = -(-max(0, least - totals(outcome.proved).compared) // left)
            proved = prove(model, Path(home), seed, wanting, say)
            eager, faults = _checked(model, seed)
        outcome.proved[name] = replace(proved)
        outcome.caught |= {f"{name} {fault}": found for fault, found in faults.items()}
        outcome.eager, outcome.eager_differences = outcome.eager + eager[0], outcome.eager_differences + eager[1]
        say(proved.words(name))
    return outcome


def _silent(line: str) -> None: ...
