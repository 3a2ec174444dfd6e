"""Which window a model whose files are here would get on this machine, by the arithmetic that a start uses.

Headers are read and no weight; a drafter's checkpoint, which a start may load too, is not looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tensorfold.application.loading import describe
from tensorfold.application.memory_planning import plan_memory
from tensorfold.application.ports.backend import Backend
from tensorfold.application.ports.checkpoints import CheckpointReader, RefusedError
from tensorfold.application.prompt_keeping import kept_ends
from tensorfold.application.settings import PUBLISHED, MemorySettings, PromptSettings


@dataclass(frozen=True, slots=True)
class Fitting:
    """The window of a start without flags on `backend`, what set it, and the bytes it was reckoned with.

    With a `refusal` there is none, and the sentence says why.
    """

    backend: str
    context: int = 0
    bound: str = ""
    budget: int = 0
    weights: int = 0
    refusal: str = ""


def fitting(
    folder: Path, backend: Backend, reader: CheckpointReader, memory: MemorySettings, prompts: PromptSettings
) -> Fitting:
    """The window, or why there is none."""
    try:
        if (missing := backend.missing()) is not None:
            return Fitting(backend.name, refusal=missing)
        facts = reader.facts(folder)
        described = describe(facts, backend.name, None)
        kept = kept_ends(prompts)
        planned = plan_memory(described, facts, backend, memory, PUBLISHED, None, None, kept=kept)
    except RefusedError as refusal:
        return Fitting(backend.name, refusal=refusal.message)
    plan, window = planned.plan, planned.window
    return Fitting(backend.name, window.tokens, window.bound, plan.budget.process, plan.footprint.weights)
