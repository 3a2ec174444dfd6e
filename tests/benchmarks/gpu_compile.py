"""Kernels of the models of true geometry, compiled side by side: a model that is timed afterwards loads in a fraction.

Kernels follow from the shapes of ops, so a model is cut to the fewest layers that have every kind of op, and what a
load check would launch is launched once: prompts, rounds and drafts in a process each, since one compiles one kernel at
a time. What was done is marked in the folder of compiled kernels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tensorfold.domain.families.plans import DecoderPlan
from tests.benchmarks.gpu_beside import FailedError, beside
from tests.synthetic.true_models import NAMES, true_model

Say = Callable[[str], None]
STAGES = ("prompts", "rounds", "drafts")
PROMPTS = (37, 256, 1000)
_MOST_S = 240.0


def compile_all(folder: Path, say: Say, names: Sequence[str] = NAMES) -> dict[str, float | str]:
    """Seconds that each model took which is not marked yet; in words why one could not be compiled."""
    found: dict[str, float | str] = {}
    wanted = [(name, str(folder), stage) for name in names if not _mark(folder, name).exists() for stage in STAGES]
    for (name, _, stage), took in beside(compiled, wanted, _MOST_S):
        if isinstance(took, FailedError):
            say(f"{stage} of {name} were not compiled: {took}")
            found[name] = f"{stage} {str(took).strip().splitlines()[-1]}"
            continue
        say(f"{stage} of {name} compiled in {took:.0f} s")
        before = found.get(name, 0.0)
        found[name] = before if isinstance(before, str) else max(before, took)
    for name in [name for name, one in found.items() if not isinstance(one, str)]:
        folder.mkdir(parents=True, exist_ok=True)
        _mark(folder, name).touch()
    return found


def compiled(task: tuple[str, str, str]) -> float:
    """Seconds of a load of one model, by name, kernels in a folder, and of one stage of what its check launches."""
    from tensorfold.adapters.cuda import loader
    from tests.benchmarks.gpu_planting import Wanted, of

    name, folder, stage = task
    began = time.monotonic()
    model = true_model(name, shortest(true_model(name).plan))
    wanted = Wanted(graphs=False)
    # A process of its own stops before the check.
    setattr(loader, "checked", lambda parts, **how: parts)  # noqa: B010
    parts: Any = loader.load_stored(
        of(model, wanted),
        name=name,
        context=wanted.context,
        pools=wanted.room(),
        cache=Path(folder),
        on_progress=lambda line: None,
        graphs=False,
    )
    launch(parts, stage)
    parts.wait()
    return time.monotonic() - began


def launch(parts: Any, stage: str) -> None:
    """Launch every kernel of a stage once; nothing is read of it but what a head drafted."""
    import numpy as np

    from tensorfold.adapters.cuda.passes import counts

    if stage == "rounds":
        for rows in counts(parts.room):
            parts.passes(rows).run((), [None] * rows, parts.book)
        return
    entry = parts.open(sum(PROMPTS) + 64)
    if stage == "prompts":
        for count in PROMPTS:
            parts.prompt(entry, np.zeros(count, np.int64))
    elif parts.head is not None:
        _draft(parts, entry)
    parts.book.close(entry)


def _draft(parts: Any, entry: Any) -> None:
    """Rows of a prompt and of windows into a head, and drafts of every depth."""
    import torch

    from tensorfold.application.ports.target_model import ProposeSpec
    from tensorfold.domain.sampling import Sampling

    lane, assembly = parts.head.open(entry), parts.assembly
    width = parts.decoder.plan.width
    for count in (100, 1, 2, 3, 5, 9, 17, 33, 64):
        rows = torch.zeros((count, width), dtype=assembly.dtype, device=assembly.device)
        lane.absorb((5,) * count, dict.fromkeys(parts.taps, rows))
        parts.head.propose([(lane, ProposeSpec(1, 5, 1, Sampling()))])
    for depth in range(2, parts.head.limits.most + 1):
        parts.head.propose([(lane, ProposeSpec(1, 5, depth, Sampling()))])


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
