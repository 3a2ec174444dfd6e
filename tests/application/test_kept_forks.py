"""Prompt ends kept as forks over real books of pages: shared pages count once, what streams need is given up for them.

The model's lanes are those of the CUDA backend's own book, and admission reckons with the pools that it was planned
for, so an error of either shows as a lane that could not be had.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tensorfold.application.kept_states import ForkSizes
from tensorfold.application.pooled_admission import PooledAdmission
from tensorfold.application.ports.target_model import CapacityError, Lane
from tensorfold.application.prompt_cache import PromptCache
from tensorfold.application.replies import Ended, Failed
from tensorfold.application.scheduler import OUT_OF_MEMORY
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.memory.budgets import Budget
from tensorfold.domain.memory.cuda_holding import PAGE, PoolSizes, Room, room
from tensorfold.domain.memory.plan import Footprint, MemoryPlan
from tensorfold.domain.memory.state_profile import Growing, Holding, StateProfile
from tensorfold.domain.memory.work import Work
from tests.application.house import idle, law, read
from tests.application.prompt_house import RULE, Kept, cached, keeping, request, system, turn, words
from tests.application.test_allocation_faults import COSTS, WANTED, asked
from tests.fakes.faulty_model import SITES, Fault, FaultyModel, Site
from tests.fakes.hash_head import HashHead
from tests.fakes.machine import FakeMemory
from tests.fakes.paged_model import PagedModel

ROW = 4
SIZES = ForkSizes(page=ROW * PAGE, state=64, positions=PAGE)


def pools(pages: int, kept: int, streams: int = 1) -> Room:
    """`pages` for streams and whole pages of kept ends; each kept end has one more to end in."""
    return room(streams, 4000, kept, pages + kept + 1)


def plan_of(sizes: Room) -> MemoryPlan:
    """A plan whose room is what those pools hold."""
    pages = sizes.pages - 1 - sizes.kept
    state = StateProfile(0, 0, (Growing(ROW, 1, 0),), 0, Holding("float32", PAGE, PAGE, sizes.width, whole=True))
    footprint = Footprint(0, state, Work(0, 0, 0, 0), 1, PoolSizes(ROW * PAGE, 64, 1))
    return MemoryPlan(Budget(pages * ROW * PAGE, "a test's pools", 0, reserve=0), footprint)


class Counting(PagedModel):
    """Counts the lanes for streams that could not be had."""

    refused = 0

    def open(self, capacity: int) -> Lane:
        try:
            return super().open(capacity)
        except CapacityError:
            self.refused += 1
            raise

    def resume(self, lane: Lane, capacity: int) -> Lane:
        try:
            return super().resume(lane, capacity)
        except CapacityError:
            self.refused += 1
            raise


@contextmanager
def paged(sizes: Room, *, slots: int = 8, salt: int = 1, one_thread: bool = True) -> Iterator[tuple[Kept, Counting]]:
    """A server over pools of these sizes; afterwards every page, lane and kept end is free again."""
    model = Counting(law(salt), sizes, prefill_slice=0, one_thread=one_thread)
    before = model.free
    admission = PooledAdmission(plan_of(sizes), FakeMemory(binds=False))
    settings = EngineSettings(parallel=sizes.lanes - 1)
    whole = (sizes.pages - 1) * SIZES.page + sizes.kept * SIZES.state
    with keeping(model, whole, slots=slots, settings=settings, admission=admission, sizes=SIZES) as server:
        yield server, model
        idle(server.scheduler)
        assert not server.scheduler.counters.integrity_faults and not model.misuses
    assert model.free == before and model.lanes() == ()


def replies(prompts: list[list[int]], salt: int = 1) -> list[list[int]]:
    """Those of a server that keeps nothing."""
    with paged(pools(64, 0), salt=salt) as (server, _):
        return [server.ask(prompt, draft=False).ids for prompt in prompts]


def conversation(seed: int, turns: int, count: int = 400) -> list[list[int]]:
    """Prompts of a conversation whose messages have `count` ids."""
    random_ = random.Random(seed)
    prompts, history = [], system(random_, count)
    for _ in range(turns):
        prompts.append(turn(history, random_, count))
        history = [*prompts[-1], *words(random_, 12)]
    return prompts


def test_a_conversation_that_fills_most_of_the_pages_goes_on_from_its_last_end() -> None:
    prompts = conversation(1, 6)
    # The last turn's lane takes all pages but one, most of which are its kept end's own.
    most = -(-(len(prompts[-1]) + 12 + 64) // PAGE)
    with paged(pools(most + 1, 3)) as (server, model):
        got = [server.ask(prompt) for prompt in prompts]
        assert model.refused == 0
    assert [one.ids for one in got] == replies(prompts)
    for before, one in zip(prompts, got[1:], strict=False):
        assert cached(one) >= RULE.plan(before).starts[-1]


def test_another_conversations_ends_are_given_up_before_a_request_waits_or_fails() -> None:
    first, second = conversation(2, 3), conversation(3, 3)
    pages = -(-(len(second[-1]) + 76) // PAGE)
    with paged(pools(pages, 4)) as (server, model):
        for prompt in (*first, *second):
            server.ask(prompt)
        assert model.refused == 0
        assert cached(server.ask(second[-1])) > 0 and server.scheduler.counters.paused == 0


@pytest.mark.parametrize("seed", range(3))
def test_whatever_is_asked_of_small_pools_replies_are_the_fresh_ones_and_every_page_comes_back(seed: int) -> None:
    random_ = random.Random(seed)
    talks = [conversation(10 * seed + n, 4, random_.choice((60, 300, 700))) for n in range(4)]
    asked = [prompt for prompts in zip(*talks, strict=True) for prompt in prompts]
    expected = replies(asked)
    pages = max(-(-(len(prompt) + 76) // PAGE) for prompt in asked)
    sizes = pools(pages + random_.randrange(8), random_.choice((1, 2, 5)), streams=3)
    with paged(sizes, slots=random_.choice((1, 4))) as (server, model):
        for at in range(0, len(asked), 3):
            running = [server.scheduler.submit(request(prompt)) for prompt in asked[at : at + 3]]
            assert [read(one).ids for one in running] == expected[at : at + 3]
        assert model.refused == 0
        assert len(server.cache) <= sizes.kept


def test_pools_without_room_for_ends_serve_all_the_same() -> None:
    prompts = conversation(4, 3)
    with paged(pools(16, 0)) as (server, model):
        got = [server.ask(prompt) for prompt in prompts]
        assert model.forked == 0 or len(server.cache) == 0
    assert [one.ids for one in got] == replies(prompts) and not any(map(cached, got))


def test_what_is_kept_is_counted_by_its_own_pages_and_freed_as_such() -> None:
    prompts = conversation(5, 4)
    # The engine's thread is idle when this one calls the cache.
    with paged(pools(40, 6), one_thread=False) as (server, model):
        for prompt in prompts:
            server.ask(prompt)
        idle(server.scheduler)
        cache, free = server.cache, model.book.free_pages
        held = cache.held()
        # Whole pages of the longest end hold those of all the others: they are counted once.
        assert held == SIZES.page * (RULE.plan(prompts[-1]).starts[-1] // PAGE) > 0 == cache.uncounted()
        keep = cache.peek(prompts[-1])
        assert cache.shared(keep) == held and cache.reclaimable() == held and cache.reclaimable(keep) == 0
        assert cache.evict(keep) == 0 and len(cache) > 1
        count = len(cache)
        assert cache.evict() == held and cache.held() == 0
        assert len(cache) < count and model.book.free_pages == free + held // SIZES.page + count - len(cache)


def test_idle_checks_leave_kept_ends_alone_and_the_end_gives_them_up() -> None:
    prompts = conversation(6, 2)
    with paged(pools(24, 4)) as (server, model):
        server.ask(prompts[0])
        idle(server.scheduler)
        assert set(model.lanes()) == server.cache.lanes() != set()
        assert cached(server.ask(prompts[1])) > 0


def test_a_cache_that_takes_anothers_place_gives_its_ends_up_when_the_engine_calls() -> None:
    prompts = conversation(7, 2)
    with paged(pools(24, 4)) as (server, model):
        server.ask(prompts[0])
        idle(server.scheduler)
        before, engine = server.cache, server.scheduler.engine
        kept = before.lanes()
        engine.prompts = PromptCache(engine.model, RULE, 0)
        engine.prompts.succeed(before)
        assert engine.prompts.lanes() == kept
        assert cached(server.ask(prompts[1])) == 0
        assert engine.prompts.lanes() == frozenset() and not kept & set(model.lanes())


def test_a_lane_that_a_book_cannot_give_costs_kept_ends_and_no_request() -> None:
    prompts = conversation(8, 2)
    sizes = pools(-(-(len(prompts[1]) + 76) // PAGE), 3)
    model = Counting(law(1), sizes, prefill_slice=0)
    # Nothing is known of memory here: the book alone says no.
    with keeping(model, 1 << 30, settings=EngineSettings(parallel=1), sizes=SIZES) as server:
        got = [server.ask(prompt) for prompt in (*prompts, conversation(9, 1)[0])]
        assert model.refused > 0
    assert [one.ids for one in got] == replies([*prompts, conversation(9, 1)[0]])


def test_a_model_that_cannot_close_a_kept_end_is_told_of() -> None:
    class Stuck(Counting):
        def close(self, lane: Lane) -> None:
            if lane in server.cache.lanes() or self.closing:
                self.closing = True
                raise RuntimeError("busy")
            super().close(lane)

        closing = False

    model = Stuck(law(1), pools(24, 4), prefill_slice=0)
    with keeping(model, 1 << 30, settings=EngineSettings(parallel=1), sizes=replace(SIZES)) as server:
        server.ask(conversation(1, 1)[0])
        idle(server.scheduler)
        model.closing = True
        server.cache.evict()
        server.cache.clear()
        assert any("a kept state did not close" in line for line in server.lines)
        model.closing = False


@contextmanager
def faulty(faults: list[Fault]) -> Iterator[tuple[Kept, FaultyModel]]:
    """A server with pages for two lanes or so, whose books are closed at the end."""
    sizes = pools(2, 3, streams=3)
    inner = PagedModel(law(1), sizes, prefill_slice=0, chain_width=4, head=HashHead(), costs=COSTS)
    before, model = inner.free, FaultyModel(inner, faults)
    admission = PooledAdmission(plan_of(sizes), FakeMemory(binds=False))
    with keeping(model, 1 << 30, settings=EngineSettings(parallel=3), admission=admission, sizes=SIZES) as server:
        yield server, model
        idle(server.scheduler)
        server.scheduler.check_integrity()
    # What a faulty close left open is a page that stays; nothing else is.
    if not any(fault.site == "close" for fault in faults):
        assert inner.free == before and inner.lanes() == ()
    assert not inner.misuses


def test_without_a_fault_the_calls_of_kept_forks_are_made_and_the_replies_are_the_fresh_ones() -> None:
    seen = [Fault(site, error=None) for site in SITES]
    with faulty(seen) as (server, _):
        assert [one.ids for one in asked(server)] == WANTED
        assert server.scheduler.counters.cached_tokens > 0
    assert {fault.site for fault in seen if fault.struck} == set(SITES) - {"export", "restore", "discard"}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("site", ["open", "close", "fork", "prefill", "launch", "collect", "keep", "propose"])
@pytest.mark.slow
def test_an_allocation_that_fails_beside_kept_forks_ends_one_request_at_most(site: Site, after: bool) -> None:
    struck = 0
    for nth in (1, 2, 3, 5, 8, 13):
        fault = Fault(site, nth=nth, after=after, error=lambda: MemoryError("no bytes"))
        with faulty([fault]) as (server, model):
            got = asked(server)
            failed = [one for one in got if not isinstance(one.end, Ended)]
            assert len(failed) <= (0 if site in ("fork", "close", "propose") else 1), [one.end for one in failed]
            assert all(one.end == Failed(OUT_OF_MEMORY) for one in failed)
            for one, wanted in zip(got, WANTED, strict=True):
                assert one.ids == (wanted[: len(one.ids)] if one in failed else wanted)
            model.faults.clear()
            assert [one.ids for one in asked(server)] == WANTED
        struck += fault.struck
    assert struck, f"{site} was never called so often"
