"""From a described checkpoint to a memory plan and a window: before a weight is read, and the same on every start.

The backend says what it would hold and what machine it is on; all else is arithmetic of `domain.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorfold.application.loading import Described
from tensorfold.application.ports.backend import Backend, DrafterCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.ports.target_model import ModelLimits
from tensorfold.application.settings import DraftSettings, MemorySettings
from tensorfold.domain.families.device_limits import DEFAULT_SHARE, memory_share
from tensorfold.domain.memory.budgets import budget, gib
from tensorfold.domain.memory.plan import MemoryPlan
from tensorfold.domain.memory.windows import LIMIT, ContextWindow, MemoryRefusal, choose


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """What a model takes of its budget, and the window that follows; `asked` is what --context said."""

    described: Described
    plan: MemoryPlan
    window: ContextWindow
    asked: int | None

    def lines(self, *, binds: bool) -> list[str]:
        """The startup report's lines; `binds`: the allocator holds to the budget by itself."""
        plan, window = self.plan, self.window
        held = "the allocator holds to it" if binds else "this device's allocator binds nothing, arithmetic stands in"
        whole = plan.lane(window.tokens, window.tokens)
        several = max(1, (plan.room - plan.work(window.tokens)) // max(1, whole))
        lines = [
            f"memory: a budget of {gib(plan.budget.process)} ({plan.budget.bound}), {gib(plan.budget.allocator)} of it "
            f"for the model: weights {gib(plan.footprint.weights)}, a round's work up to "
            f"{gib(plan.work(window.tokens))}; {held}",
            f"memory: a stream takes {gib(plan.lane(1, window.tokens))} when it opens, {_kib(plan)} a token, "
            f"{gib(whole)} with the whole window; {several} such fit at once",
        ]
        return [*lines, f"memory: {plan.budget.note}"] if plan.budget.note else lines

    @property
    def words(self) -> str:
        """What set the window, for the line that tells it."""
        kept = "room to keep a prompt beside it" if self.window.retains else "no room to keep a prompt beside it"
        return f"set by {self.window.bound}; {kept}"


def plan_memory(
    described: Described,
    facts: CheckpointFacts,
    backend: Backend,
    settings: MemorySettings,
    heads: DraftSettings,
    drafter: DrafterCheckpoint | None,
    asked: int | None,
) -> PlannedMemory:
    """The plan and the window. Raises RefusedError when the weights, or the window asked for, do not fit."""
    machine = backend.machine()
    # A family's larger share is meant for a machine that holds nothing but its model.
    share = memory_share(described.plan.memory, machine.ram) if drafter is None else DEFAULT_SHARE
    made = budget(machine, share, limit=settings.limit, cache=settings.cache, limit_name=LIMIT)
    footprint = backend.footprint(described.plan, described.bound, facts, drafts=heads, drafter=drafter)
    return _chosen(described, MemoryPlan(made, footprint), asked)


def widest_pass(limits: ModelLimits, chunk: int) -> int:
    """Rows of the widest pass that a loaded model runs: a launch, or a prompt's slice, or its whole chunk."""
    return max(limits.batch_rows, limits.prefill_slice or chunk)


def settled(planned: PlannedMemory, rows: int) -> PlannedMemory:
    """The plan of a model whose widest pass turned out to have `rows` rows. Raises RefusedError as `plan_memory`."""
    if rows <= planned.plan.footprint.rows:
        return planned
    plan = replace(planned.plan, footprint=replace(planned.plan.footprint, rows=rows))
    return _chosen(planned.described, plan, planned.asked)


def _chosen(described: Described, plan: MemoryPlan, asked: int | None) -> PlannedMemory:
    try:
        window = choose(described.plan, plan, asked)
    except MemoryRefusal as refusal:
        raise RefusedError(refusal.message) from None
    return PlannedMemory(replace(described, context=window.tokens), plan, window, asked)


def _kib(plan: MemoryPlan) -> str:
    return f"{plan.footprint.state.token_bytes / 1024:.1f} KiB"
