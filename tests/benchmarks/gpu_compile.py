"""Kernels of the models of true geometry, compiled side by side: a model that is timed afterwards loads in a fraction.

Kernels follow from the shapes of ops, so a model is cut to the fewest layers that have every kind of op, and loaded,
checked and timed as any other. What was done is marked in the folder of compiled kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tensorfold.domain.families.plans import DecoderPlan
from tests.benchmarks.gpu_beside import FailedError, beside
from tests.synthetic.true_models import NAMES, true_model

Say = Callable[[str], None]
_MOST_S = 240.0


def compile_all(folder: Path, say: Say, names: Sequence[str] = NAMES) -> dict[str, float | str]:
    """Seconds that each model took which is not marked yet; in words why one could not be compiled."""
    found: dict[str, float | str] = {}
    wanted = [(name, str(folder)) for name in names if not _mark(folder, name).exists()]
    for (name, _), took in beside(compiled, wanted, _MOST_S):
        if isinstance(took, FailedError):
            say(f"{name} was not compiled: {took}")
            found[name] = str(took).strip().splitlines()[-1]
            continue
        say(f"{name} compiled in {took:.0f} s")
        found[name] = took
        _mark(folder, name).parent.mkdir(parents=True, exist_ok=True)
        _mark(folder, name).touch()
    return found


def compiled(task: tuple[str, str]) -> float:
    """Seconds of a load of one model, by name, kernels in a folder, cut to its first layers."""
    from tests.benchmarks.gpu_planting import Wanted, loaded, of

    name, folder = task
    began = time.monotonic()
    model = true_model(name, shortest(true_model(name).plan))
    with loaded(of(model, Wanted()), model.title, Wanted(), Path(folder), lambda line: None):
        return time.monotonic() - began


def shortest(plan: DecoderPlan) -> int:
    """The fewest first layers of a plan that have every kind of op."""
    seen: set[type] = set()
    count = 0
    for number, layer in enumerate(plan.layers, 1):
        kinds = {type(sublayer.op) for sublayer in layer}
        count = number if kinds - seen else count
        seen |= kinds
    return count


def _mark(folder: Path, name: str) -> Path:
    return folder / f"compiled-{name}"
