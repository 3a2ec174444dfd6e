"""From a described checkpoint to a memory plan and a window: before a weight is read, and the same on every start.

The backend says what it would hold and what machine it is on; all else is arithmetic of `domain.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorfold.application.loading import Described
from tensorfold.application.ports.backend import Backend, DrafterCheckpoint, ModelCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.ports.target_model import ModelLimits
from tensorfold.application.settings import DraftSettings, MemorySettings
from tensorfold.domain.families.catalogue import family_of
from tensorfold.domain.families.device_limits import DEFAULT_SHARE, memory_share
from tensorfold.domain.memory.budgets import Card, budget, gib
from tensorfold.domain.memory.cuda_budget import CARD_LIMIT, card_budget, check_host
from tensorfold.domain.memory.cuda_holding import PAGE, Room
from tensorfold.domain.memory.cuda_windows import choose_cuda
from tensorfold.domain.memory.plan import Footprint, MemoryPlan
from tensorfold.domain.memory.windows import LIMIT, ContextWindow, MemoryRefusal, choose


@dataclass(frozen=True, slots=True)
class PlannedMemory:
    """What a model takes of its budget, and the window that follows; `asked` is what --context said."""

    described: Described
    plan: MemoryPlan
    window: ContextWindow
    asked: int | None
    pools: Room | None = None
    """The pools that are allocated at once; None where lanes grow by themselves."""

    def lines(self, *, binds: bool) -> list[str]:
        """The startup report's lines; `binds`: the allocator holds to the budget by itself."""
        plan, window = self.plan, self.window
        if self.pools is not None:
            return self._card_lines(self.pools)
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

    def _card_lines(self, pools: Room) -> list[str]:
        """The same for a card: an estimate, which nothing binds."""
        plan, sizes = self.plan, self.plan.footprint.pools
        assert sizes is not None
        weights, fixed, pages = plan.footprint.weights, sizes.fixed(pools), (pools.pages - 1) * sizes.page
        scratch = plan.work(self.window.tokens) - fixed - pools.kept * sizes.page
        left = f"; {gib(plan.budget.reserve)} {plan.budget.kept_for}" if plan.budget.reserve else ""
        lines = [
            f"memory: {gib(weights + scratch + fixed + pages)} by estimate ({plan.budget.bound}{left}): weights "
            f"{gib(weights)}, launches and prompts {gib(scratch)}, states {gib(fixed)}, keys and values {gib(pages)}",
            f"memory: {pools.pages - 1} pages of {PAGE} positions, {gib(sizes.page)} each; a stream of the window "
            f"has {pools.pages_per_lane}; room for {pools.kept} kept prompt ends, {gib(sizes.place)} of state each",
            f"memory: a load adds up to {gib(plan.footprint.host)} to what the process holds of the machine's memory",
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
    *,
    streams: int = 1,
    kept: int = 0,
) -> PlannedMemory:
    """The plan and the window. Raises RefusedError when the weights, or the window asked for, do not fit.

    On a card it plans pools for so many `streams`, and for as many `kept` prompt ends as there is room for.
    """
    machine = backend.machine()
    checkpoint = ModelCheckpoint(described.plan, described.bound, facts, heads, drafter)
    if machine.card is not None:
        footprint = backend.footprint(checkpoint)
        target = family_of(facts.config).cuda_context
        return _on_card(described, footprint, machine.card, settings, asked, target, streams, kept)
    # A family's larger share is meant for a machine that holds nothing but its model.
    share = memory_share(described.plan.memory, machine.ram) if drafter is None else DEFAULT_SHARE
    made = budget(machine, share, limit=settings.limit, cache=settings.cache, limit_name=LIMIT)
    footprint = backend.footprint(checkpoint)
    return _chosen(described, MemoryPlan(made, footprint), asked)


def widest_pass(limits: ModelLimits, chunk: int) -> int:
    """Rows of the widest pass that a loaded model runs: a launch, or a prompt's slice, or its whole chunk."""
    return max(limits.batch_rows, limits.prefill_slice or chunk)


def settled(planned: PlannedMemory, rows: int) -> PlannedMemory:
    """The plan of a model whose widest pass turned out to have `rows` rows. Raises RefusedError as `plan_memory`."""
    if rows <= planned.plan.footprint.rows or planned.pools is not None:
        # Pools are there as they were planned; a wider pass of a loaded model changes nothing of them.
        return planned
    plan = replace(planned.plan, footprint=replace(planned.plan.footprint, rows=rows))
    return _chosen(planned.described, plan, planned.asked)


def _chosen(described: Described, plan: MemoryPlan, asked: int | None) -> PlannedMemory:
    try:
        window = choose(described.plan, plan, asked)
    except MemoryRefusal as refusal:
        raise RefusedError(refusal.message) from None
    return PlannedMemory(replace(described, context=window.tokens), plan, window, asked)


def _on_card(
    described: Described,
    footprint: Footprint,
    card: Card,
    settings: MemorySettings,
    asked: int | None,
    target: int,
    streams: int,
    kept: int,
) -> PlannedMemory:
    named = {CARD_LIMIT: settings.card_limit, LIMIT: settings.limit}
    limits = {name: size for name, size in named.items() if size is not None}
    try:
        made = card_budget(card, reserve=settings.reserve, limits=limits)
        check_host(card, footprint.staging)
        chosen = choose_cuda(
            described.plan, MemoryPlan(made, footprint), asked, target=target, streams=streams, kept=kept
        )
    except MemoryRefusal as refusal:
        raise RefusedError(refusal.message) from None
    described = replace(described, context=chosen.window.tokens)
    return PlannedMemory(described, chosen.memory, chosen.window, asked, chosen.pools)


def _kib(plan: MemoryPlan) -> str:
    return f"{plan.footprint.state.token_bytes / 1024:.1f} KiB"
