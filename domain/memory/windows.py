"""The context window of a server: what was asked for, what the checkpoint states, what fits. The same every start.

Every refusal is one sentence with the window that would be taken. Knows no command line beyond the names of its flags.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tensorfold.domain.families.ops import IndexedAttention, Op, Rope
from tensorfold.domain.families.plans import DecoderPlan, Parallel
from tensorfold.domain.memory.budgets import gib
from tensorfold.domain.memory.plan import MemoryPlan

STEP = 1024
MOST = 1 << 20
"""Tokens of a window whatever memory there is."""
LEAST = 2
"""A token of prompt and one of reply."""
VARIABLES = "TENSORFOLD_"
LIMIT = "TENSORFOLD_MEMORY_LIMIT_GB"


class MemoryRefusal(Exception):  # noqa: N818 - a refusal is what it is
    """What does not fit; `message` is one sentence."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """`tokens` of prompt and reply, and in words what set them. `retains`: a prompt of them can be kept beside it."""

    tokens: int
    bound: str
    retains: bool


def check_asked(plan: DecoderPlan, asked: int | None) -> None:
    """Refuse a window that no amount of memory would give. Raises MemoryRefusal."""
    if asked in (None, 0):
        return
    assert asked is not None
    most = min(MOST, positions(plan))
    if asked < LEAST:
        raise MemoryRefusal(
            f"--context {asked} does not fit: a window holds a token of prompt and one of reply; "
            f"give a number from {LEAST} to {most}."
        )
    if asked > MOST:
        raise MemoryRefusal(f"--context {asked} is more than the {MOST} tokens that a window may hold.")
    if asked > most:
        raise MemoryRefusal(
            f"--context {asked} does not fit: the checkpoint scales its positions for {most} tokens "
            f"(config.json's rope settings); give a number from {LEAST} to {most}."
        )


def positions(plan: DecoderPlan) -> int:
    """Positions that a model can tell apart: the metadata window where a scaling was made for it, else no limit."""
    scaled = any(rope.form in ("llama3", "yarn") for rope in _ropes(plan))
    return plan.context if scaled else MOST


def choose(plan: DecoderPlan, memory: MemoryPlan, asked: int | None) -> ContextWindow:
    """The window. Raises MemoryRefusal when weights, or one request of it, do not fit."""
    check_asked(plan, asked)
    _check_weights(memory)
    if asked:
        return _asked(plan, memory, asked)
    stated = min(positions(plan), MOST) if asked == 0 else min(plan.context, MOST)
    why = "its positions" if asked == 0 and stated < MOST else "the most there is" if asked == 0 else "the checkpoint"
    for copies in (2, 1):
        fitting = memory.largest(stated, copies)
        if fitting == stated:
            return ContextWindow(stated, why, copies == 2)
        rounded = fitting // STEP * STEP
        if rounded:
            return ContextWindow(rounded, "memory", copies == 2)
    fitting = memory.largest(stated)
    if fitting < LEAST:
        raise MemoryRefusal(_nothing_fits(memory))
    return ContextWindow(fitting, "memory", False)


def _asked(plan: DecoderPlan, memory: MemoryPlan, asked: int) -> ContextWindow:
    if memory.fits(asked):
        return ContextWindow(asked, "--context", memory.fits(asked, 2))
    fitting = memory.largest(asked)
    if fitting < LEAST:
        raise MemoryRefusal(_nothing_fits(memory))
    raise MemoryRefusal(
        f"--context {asked} does not fit: one request of it takes {gib(memory.request(asked))} and "
        f"{gib(memory.room)} are left beside the weights ({budget_words(memory)}); --context {fitting} fits."
    )


def _check_weights(memory: MemoryPlan) -> None:
    if memory.room >= 0:
        return
    raise MemoryRefusal(
        f"The weights take {gib(memory.footprint.weights)} of memory and {gib(memory.budget.allocator)} are left for "
        f"them ({budget_words(memory)}): {_way_out(memory)}."
    )


def _nothing_fits(memory: MemoryPlan) -> str:
    return (
        f"No request fits beside the weights: they take {gib(memory.footprint.weights)}, a window of {LEAST} tokens "
        f"{gib(memory.request(LEAST))}, and there are {gib(memory.budget.allocator)} ({budget_words(memory)}): "
        f"{_way_out(memory)}."
    )


def _way_out(memory: MemoryPlan) -> str:
    """What the reader can do: where a variable bounds the budget, the machine may well have the memory."""
    bound = memory.budget.bound
    raised = f"raise {bound}, " if bound.startswith(VARIABLES) else ""
    return f"{raised}take a smaller checkpoint or a machine with more memory"


def budget_words(memory: MemoryPlan) -> str:
    """The budget, so that its reader can tell which figure to change."""
    budget = memory.budget
    raised = " in the environment" if budget.bound.startswith(VARIABLES) else ""
    kept = f", less {gib(budget.reserve)} {budget.kept_for}" if budget.reserve else ""
    return f"a budget of {gib(budget.process)}, {budget.bound}{raised}{kept}"


def _ropes(plan: DecoderPlan) -> Iterator[Rope]:
    for layer in plan.layers:
        for sublayer in layer:
            parallel = sublayer.op
            ops = [branch.op for branch in parallel.branches] if isinstance(parallel, Parallel) else [parallel]
            yield from (rope for op in ops for rope in _ropes_of(op))


def _ropes_of(op: Op) -> Iterator[Rope]:
    parts = (op.attention, op.indexer) if isinstance(op, IndexedAttention) else (op, getattr(op, "indexer", None))
    for part in parts:
        rope = getattr(part, "rope", None)
        if isinstance(rope, Rope):
            yield rope
