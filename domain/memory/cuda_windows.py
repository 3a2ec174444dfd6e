"""The window of a server on a card, and the pools that follow: how many pages, and how many prompt ends are kept.

Every refusal is one sentence, made before a weight is read, with the window that fits. Pools are sized once: what is
admitted later is reckoned against the very pages that were allocated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.memory.budgets import gib
from tensorfold.domain.memory.cuda_holding import Room, room
from tensorfold.domain.memory.plan import MemoryPlan
from tensorfold.domain.memory.windows import LEAST, STEP, ContextWindow, MemoryRefusal, budget_words
from tensorfold.domain.prompts.family_chunk import card_chunks, choose_chunk

KEPT_SHARE = 8
"""Room for kept prompt ends takes at most this part of what the weights leave, where a window was not asked for."""
CHUNK_SHARE = 8
"""The rows of a prompt's chunk take at most this part of what the weights leave."""
KEPT_WINDOWS = 4
"""Windows' worth of pages that kept prompt ends may fill beside the streams' own."""


@dataclass(frozen=True, slots=True)
class CudaPlan:
    """What a model takes of a card: the plan with its pools counted, the window, and the pools themselves."""

    memory: MemoryPlan
    window: ContextWindow
    pools: Room


def check_asked_cuda(plan: DecoderPlan, asked: int | None) -> None:
    """Refuse a window that no amount of memory would give. Raises MemoryRefusal."""
    if asked in (None, 0):
        return
    assert asked is not None
    if asked < LEAST:
        raise MemoryRefusal(
            f"--context {asked} does not fit: a window holds a token of prompt and one of reply; "
            f"give a number from {LEAST} to {plan.context}."
        )
    if asked > plan.context:
        raise MemoryRefusal(
            f"--context {asked} is more than the model's own window of {plan.context} tokens, which CUDA does not go "
            f"past; give a number from {LEAST} to {plan.context}, or 0 for what of it memory holds."
        )


def choose_cuda(
    plan: DecoderPlan, memory: MemoryPlan, asked: int | None, *, target: int = 0, streams: int = 1, kept: int = 0
) -> CudaPlan:
    """The window and the pools for `streams` streams and at most `kept` kept prompt ends.

    `target` is the window aimed at where none is asked for, 0 for the model's own. The rows of the plan are those of a
    prompt's chunk. Raises MemoryRefusal when weights, or one request of the window, do not fit.
    """
    check_asked_cuda(plan, asked)
    _check_weights(memory)
    memory = with_chunk(memory, asked, streams)
    assert memory.footprint.pools is not None
    kept = min(kept, max(0, memory.room) // KEPT_SHARE // max(1, memory.footprint.pools.kept()))
    if asked:
        return _asked(memory, asked, streams, kept)
    most, why = (min(target, plan.context), "the family's default on CUDA") if target and asked is None else (0, "")
    most, why = (plan.context, "the model's own window") if not most or most == plan.context else (most, why)
    sized = with_pools(memory, room(streams, most, kept))
    if kept and not sized.fits(LEAST):
        # Rather a window than a kept prompt end.
        kept, sized = 0, with_pools(memory, room(streams, most, 0))
    fitting = sized.largest(most)
    if fitting < most:
        fitting, why = fitting // STEP * STEP or fitting, "memory"
    if fitting < LEAST:
        raise MemoryRefusal(_nothing_fits(sized))
    return _planned(sized, ContextWindow(fitting, why, False), streams, kept)


def with_chunk(memory: MemoryPlan, asked: int | None, streams: int) -> MemoryPlan:
    """The plan with the rows of a chunk: the most of which CHUNK_SHARE holds and beside which a request fits.

    The request is one of the `asked` window, or the smallest. It follows from budget, weights, streams and the window
    asked for alone, so that it does not move with what a server keeps.
    """

    def sized(rows: int) -> MemoryPlan:
        return replace(memory, footprint=replace(memory.footprint, rows=rows))

    def fits(rows: int) -> bool:
        if memory.footprint.work.row * rows > max(0, memory.room) // CHUNK_SHARE:
            return False
        tokens = asked or LEAST
        return with_pools(sized(rows), room(streams, tokens)).fits(tokens)

    return sized(choose_chunk(card_chunks(streams), fits, tensor_units=True))


def with_pools(memory: MemoryPlan, pools: Room) -> MemoryPlan:
    """The plan with what pools hold besides pages counted as work, and lanes with the windows of these pools."""
    found = memory.footprint
    assert found.pools is not None
    work = replace(found.work, fixed=found.work.fixed + found.pools.fixed(pools) + pools.kept * found.pools.page)
    state = replace(found.state, holding=replace(found.state.holding, slack=pools.width))
    return replace(memory, footprint=replace(found, work=work, state=state))


def _asked(memory: MemoryPlan, asked: int, streams: int, kept: int) -> CudaPlan:
    while True:
        sized = with_pools(memory, room(streams, asked, kept))
        if sized.fits(asked):
            return _planned(sized, ContextWindow(asked, "--context", False), streams, kept)
        if not kept:
            break
        kept -= 1
    fitting = sized.largest(asked)
    if fitting < LEAST:
        raise MemoryRefusal(_nothing_fits(sized))
    raise MemoryRefusal(
        f"--context {asked} does not fit: one request of it takes {gib(sized.request(asked))} and {gib(sized.room)} "
        f"are left beside the weights ({budget_words(sized)}); --context {fitting} fits. Nothing was loaded."
    )


def _planned(sized: MemoryPlan, window: ContextWindow, streams: int, kept: int) -> CudaPlan:
    """The pools that memory gives, and the plan with no byte more than they hold."""
    pools = room(streams, window.tokens, kept)
    page = sized.footprint.pools.page if sized.footprint.pools is not None else 0
    wanted = (streams + min(kept, KEPT_WINDOWS)) * pools.pages_per_lane
    held = min(wanted, (sized.room - sized.work(window.tokens)) // page) if page else wanted
    over = sized.room - sized.work(window.tokens) - held * page
    budget = replace(sized.budget, process=sized.budget.process - max(0, over))
    retains = bool(kept) and held >= 2 * pools.pages_per_lane
    return CudaPlan(
        replace(sized, budget=budget),
        replace(window, retains=retains),
        # A page more for each kept prompt end, which ends inside one, and nobody's.
        replace(pools, pages=held + kept + 1),
    )


def _check_weights(memory: MemoryPlan) -> None:
    needed = memory.footprint.weights + memory.footprint.staging
    if needed <= memory.budget.allocator:
        return
    raise MemoryRefusal(
        f"The weights take {gib(memory.footprint.weights)} of the card, {gib(needed)} while they are read, and "
        f"{gib(memory.budget.allocator)} are left for them ({budget_words(memory)}): take a smaller checkpoint or a "
        "card with more memory. Nothing was loaded."
    )


def _nothing_fits(memory: MemoryPlan) -> str:
    return (
        f"No request fits beside the weights: they take {gib(memory.footprint.weights)}, a window of {LEAST} tokens "
        f"{gib(memory.request(LEAST))}, and there are {gib(memory.budget.allocator)} ({budget_words(memory)}): take a "
        "smaller checkpoint or a card with more memory. Nothing was loaded."
    )
