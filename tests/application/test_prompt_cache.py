"""Kept states of prompts through the real scheduler: a resumed reply is the fresh one, and little is read again.

Each test runs over states that are images in the host's memory and over states that are forks on the device; what is
about the disk, over images alone.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensorfold.application.engine import Engine
from tensorfold.application.ports.target_model import CapacityError, Lane, LaneImage, TargetModel
from tensorfold.application.prompt_cache import PromptCache
from tensorfold.application.settings import EngineSettings
from tensorfold.application.snapshots import SnapshotShelf
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.streams import Stream
from tests.application.house import MachineClock, idle, read
from tests.application.prompt_house import (
    DEFAULTS,
    MUCH,
    RULE,
    SAMPLED,
    cached,
    fresh,
    keeping,
    model,
    request,
    system,
    turn,
    words,
)
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.stores import FakeSnapshotStore
from tests.fakes.wrapped_model import WrappedModel

IMAGES = pytest.mark.parametrize("form", ["chunk"], indirect=True)


@pytest.fixture(params=["chunk", "prompt_end"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(DEFAULTS, "resume", request.param)
    return str(request.param)


def conversation(seed: int, turns: int) -> list[list[int]]:
    """Prompts of a conversation in which every reply is as it was."""
    random_ = random.Random(seed)
    prompts, history = [], system(random_)
    with keeping(model(), 0) as server:
        for _ in range(turns):
            prompts.append(turn(history, random_, random_.randrange(1, 20)))
            history = [*prompts[-1], *server.ask(prompts[-1]).ids]
    return prompts


def test_the_model_of_these_tests_notices_where_a_prompt_is_cut() -> None:
    prompt = turn(system(random.Random(1)), random.Random(2))
    whole = HashModel(HashLaw(vocabulary=64, salt=1))
    with keeping(whole, 0) as server:
        assert server.ask(prompt).ids != fresh([prompt])[0].ids


@pytest.mark.parametrize("slice_rows", [0, 4])
@pytest.mark.parametrize("draft", [False, True])
def test_each_turn_resumes_and_its_reply_is_the_fresh_one(slice_rows: int, draft: bool) -> None:
    prompts = conversation(3, 8)
    expected = fresh(prompts, prefill_slice=slice_rows)
    with keeping(model(prefill_slice=slice_rows)) as server:
        got = [server.ask(prompt, draft=draft) for prompt in prompts]
        spared = server.scheduler.counters.cached_tokens
        assert server.filled + spared == sum(len(p) - 1 for p in prompts)
    assert [one.ids for one in got] == [one.ids for one in expected]
    assert cached(got[0]) == 0 and all(cached(one) for one in got[1:])
    for before, prompt, one in zip(prompts, prompts[1:], got[1:], strict=False):
        assert len(prompt) - cached(one) <= len(prompt) - len(before) + 2 + RULE.least


@pytest.mark.parametrize("seed", range(4))
def test_a_reply_resumed_from_any_start_is_the_fresh_one(seed: int) -> None:
    random_ = random.Random(seed)
    prompt = conversation(seed, 5)[-1]
    starts = RULE.plan(prompt).starts
    expected = fresh([prompt])[0].ids
    for start in starts[1:]:
        with keeping(model()) as server:
            # What else begins so keeps the state behind it: the next start is the last one of its plan.
            server.ask([*prompt[:start], *prompt[start : start + 2], *words(random_, 1)])
            got = server.ask(prompt)
            assert cached(got) in (start, *[s for s in starts if s < start])
            assert got.ids == expected
    assert len(starts) > 3


def test_a_prompt_edited_before_a_boundary_never_resumes_past_the_edit() -> None:
    random_, prompts = random.Random(5), conversation(5, 6)
    places = sorted(random_.sample(range(len(prompts[-1]) - 1), 12))
    edited = [[*prompts[-1][:at], 63, *prompts[-1][at + 1 :]] for at in places]
    expected = fresh(edited)
    resumed = []
    for at, prompt, one in zip(places, edited, expected, strict=True):
        with keeping(model()) as server:
            for turn_ in prompts:
                server.ask(turn_, 1)
            got = server.ask(prompt)
        assert got.ids == one.ids
        if prompt[at] != prompts[-1][at]:
            assert cached(got) <= at
        resumed.append(cached(got))
    assert resumed[0] == 0 and resumed[-1] > 0


def test_a_regenerated_reply_is_the_same_and_resumes() -> None:
    (prompt,) = conversation(6, 1)
    with keeping(model()) as server:
        one, other = server.ask(prompt), server.ask(prompt)
    assert one.ids == other.ids and cached(other) == RULE.plan(prompt).starts[-1]


def engine_of(target: TargetModel, **settings: Any) -> Engine:
    engine = Engine(target, EngineSettings(), MachineClock())
    engine.prompts = PromptCache(target, RULE, MUCH, **settings)
    return engine


@pytest.mark.parametrize("slice_rows", [0, 8])
def test_a_prompt_that_is_given_up_at_any_cut_is_read_on_from_there(slice_rows: int) -> None:
    prompt = conversation(7, 6)[-1]
    whole = model(prefill_slice=slice_rows)
    engine = engine_of(whole)
    live = engine.open(Stream(prompt, max_tokens=4, sampling=SAMPLED, stop_ids=frozenset()))
    while not engine.fill(live):
        pass
    state = whole.state(live.lane)
    cuts = len(list(RULE.plan(prompt, slice_rows).spans()))
    for done in range(cuts + 1):
        other = model(prefill_slice=slice_rows)
        engine = engine_of(other)
        live = engine.open(Stream(prompt, max_tokens=4, sampling=SAMPLED, stop_ids=frozenset()))
        for _ in range(min(done, cuts)):
            engine.fill(live)
        filled = live.filled
        engine.close(live, keep=True)
        again = engine.open(Stream(prompt, max_tokens=4, sampling=SAMPLED, stop_ids=frozenset()))
        if filled < len(prompt) - 1:
            assert again.cached == (filled if filled >= 32 else again.cached)
        while again.to_fill > 0:
            engine.fill(again)
        assert other.state(again.lane) == state
        assert set(other.lanes()) - engine.prompts.lanes() == {again.lane}


def test_equal_prompts_at_once_are_read_once_and_draw_what_each_would_alone() -> None:
    prompt = conversation(8, 5)[-1]
    samplings = [Sampling(seed, 1.0, 0, 0.95) for seed in range(4)]
    with keeping(model(), 0) as server:
        expected = [server.ask(prompt, sampling=sampling).ids for sampling in samplings]
    with keeping(model()) as server:
        asked = [server.scheduler.submit(request(prompt, sampling=sampling)) for sampling in samplings]
        got = [read(generation) for generation in asked]
        # The first may be through before the others are seen; then they read the end of it once more.
        assert server.filled <= len(prompt) - 1 + 3 * (len(prompt) - RULE.plan(prompt).starts[-1])
    assert [one.ids for one in got] == expected


def test_a_prompt_waits_for_another_that_reads_what_both_begin_with() -> None:
    random_ = random.Random(9)
    shared = system(random_, 140)
    one, other = turn(shared, random_), turn(shared, random_, 60)
    target = model()
    engine = engine_of(target)
    lives = [engine.open(Stream(p, max_tokens=4, sampling=SAMPLED, stop_ids=frozenset())) for p in (one, other, other)]
    assert [engine.waits(live) for live in lives] == [False, True, True]
    while not engine.fill(lives[0]):
        pass
    assert not engine.waits(lives[1])
    while not engine.fill(lives[1]):
        pass
    assert lives[1].cached == RULE.plan(one).shared
    assert not engine.waits(lives[2])
    engine.fill(lives[2])
    assert lives[2].cached == len(other) - 1 and lives[2].to_fill == 0
    assert target.state(lives[1].lane) == target.state(lives[2].lane)


def test_a_prompt_whose_leader_is_given_up_reads_on_from_where_that_one_came() -> None:
    prompt = conversation(10, 6)[-1]
    target = model()
    engine = engine_of(target)
    leader, follower = (
        engine.open(Stream(prompt, max_tokens=4, sampling=SAMPLED, stop_ids=frozenset())) for _ in range(2)
    )
    for _ in range(2):
        engine.fill(leader)
    came = leader.filled
    assert engine.waits(follower) and came >= 32
    engine.close(leader, keep=True)
    assert not engine.waits(follower)
    while not engine.fill(follower):
        pass
    assert follower.cached == came


def test_a_foreground_prompt_does_not_wait_for_one_in_the_background() -> None:
    prompt = conversation(11, 5)[-1]
    engine = engine_of(model())
    engine.open(Stream(prompt, max_tokens=4, sampling=SAMPLED, stop_ids=frozenset()), background=True)
    live = engine.open(Stream(prompt, max_tokens=4, sampling=SAMPLED, stop_ids=frozenset()))
    assert not engine.waits(live)


@pytest.mark.slow
@IMAGES
def test_a_restarted_server_resumes_what_the_one_before_kept() -> None:
    prompts, disk = conversation(12, 7), FakeSnapshotStore()
    expected = fresh(prompts)
    with keeping(model(), shelf=SnapshotShelf(disk)) as server:
        for prompt in prompts[:-1]:
            server.ask(prompt)
    assert disk.saved.count("system") == 1 and "conversation" in disk.saved
    with keeping(model(), shelf=SnapshotShelf(disk)) as server:
        got = server.ask(prompts[-1])
        assert got.ids == expected[-1].ids
        assert cached(got) >= RULE.plan(prompts[-2]).starts[-1]
        # Another conversation has the shared beginning.
        random_ = random.Random(12)
        other = turn(system(random_), random.Random(99))
        assert cached(server.ask(other)) == RULE.plan(other).shared


@IMAGES
def test_a_spoilt_snapshot_is_passed_over_and_the_prompt_read() -> None:
    prompts, disk = conversation(13, 4), FakeSnapshotStore()
    with keeping(model(), shelf=SnapshotShelf(disk)) as server:
        server.ask(prompts[-1])
    for snapshot in disk.held():
        disk.spoil(snapshot.key)
    with keeping(model(), shelf=SnapshotShelf(disk)) as server:
        got = server.ask(prompts[-1])
    assert got.ids == fresh(prompts)[-1].ids and cached(got) == 0


@IMAGES
def test_states_of_another_model_on_disk_change_no_reply() -> None:
    prompts, disk = conversation(14, 4), FakeSnapshotStore()
    with keeping(model(salt=2), shelf=SnapshotShelf(disk)) as server:
        server.ask(prompts[-1])
    with keeping(model(), shelf=SnapshotShelf(disk)) as server:
        got = server.ask(prompts[-1])
        assert any("could not be resumed" in line for line in server.lines)
    assert got.ids == fresh(prompts)[-1].ids and cached(got) == 0


@IMAGES
def test_a_full_disk_changes_nothing_but_the_disk() -> None:
    prompts, disk = conversation(15, 3), FakeSnapshotStore()
    disk.full = True
    with keeping(model(), shelf=SnapshotShelf(disk)) as server:
        got = [server.ask(prompt) for prompt in prompts]
    assert [one.ids for one in got] == [one.ids for one in fresh(prompts)]
    assert not disk.held() and cached(got[-1])


def test_a_budget_of_nothing_keeps_nothing_and_copies_nothing() -> None:
    prompts, target, disk = conversation(16, 3), model(), FakeSnapshotStore()
    with keeping(target, 0, shelf=SnapshotShelf(disk)) as server:
        assert [cached(server.ask(prompt)) for prompt in prompts] == [0, 0, 0]
        assert len(server.cache) == 0
    assert target.exported == target.restored == target.forked == target.resumed == 0 and not disk.held()


class Failing(WrappedModel):
    """No copy can be had without `exports`; none goes on as often as `fails` says, with what it says."""

    def __init__(self, inner: TargetModel, fails: Sequence[Exception] = (), exports: bool = True) -> None:
        super().__init__(inner)
        self.fails, self.exports = list(fails), exports

    def export(self, lane: Lane) -> LaneImage:
        if not self.exports:
            raise MemoryError
        return self.inner.export(lane)

    def restore(self, image: LaneImage, capacity: int) -> Lane:
        if self.fails:
            raise self.fails.pop(0)
        return self.inner.restore(image, capacity)

    def fork(self, lane: Lane) -> Lane:
        if not self.exports:
            raise MemoryError
        return self.inner.fork(lane)

    def resume(self, lane: Lane, capacity: int) -> Lane:
        if self.fails:
            raise self.fails.pop(0)
        return super().resume(lane, capacity)


def test_a_state_that_cannot_be_copied_is_not_kept_and_the_request_goes_on() -> None:
    prompts = conversation(17, 3)
    with keeping(Failing(model(), exports=False)) as server:
        got = [server.ask(prompt) for prompt in prompts]
        assert len(server.cache) == 0 and any("was not kept" in line for line in server.lines)
    assert [one.ids for one in got] == [one.ids for one in fresh(prompts)]


@pytest.mark.parametrize("fault", [ValueError("of another engine"), RuntimeError("broken")])
def test_a_state_that_cannot_be_restored_is_forgotten_and_the_prompt_read_from_its_start(fault: Exception) -> None:
    prompts = conversation(18, 2)
    with keeping(Failing(model(), [fault])) as server:
        got = [server.ask(prompt) for prompt in prompts]
    assert [one.ids for one in got] == [one.ids for one in fresh(prompts)]
    assert cached(got[1]) == 0


@IMAGES
def test_where_a_copy_has_no_room_beside_the_kept_state_the_kept_one_is_given_up() -> None:
    prompts = conversation(19, 2)
    with keeping(Failing(model(), [MemoryError()])) as server:
        got = [server.ask(prompt) for prompt in prompts]
    assert [one.ids for one in got] == [one.ids for one in fresh(prompts)]
    assert cached(got[1]) > 0


@IMAGES
def test_a_lane_that_is_not_there_leaves_the_kept_states_alone() -> None:
    prompts = conversation(20, 2)
    target = Failing(model(), [CapacityError("no lane")])
    engine = engine_of(target)
    live = engine.open(Stream(prompts[0], max_tokens=4, sampling=SAMPLED, stop_ids=frozenset()))
    while not engine.fill(live):
        pass
    kept = len(engine.prompts)
    with pytest.raises(CapacityError):
        engine.open(Stream(prompts[1], max_tokens=4, sampling=SAMPLED, stop_ids=frozenset()))
    assert len(engine.prompts) == kept > 0
    assert engine.open(Stream(prompts[1], max_tokens=4, sampling=SAMPLED, stop_ids=frozenset())).cached


class Heard:
    """A recorder that notes where prompts resumed."""

    def __init__(self) -> None:
        self.resumed: list[int] = []

    def began(self) -> int:
        return 0

    def record(self, tokens: Sequence[int], resumed: int, began: int) -> None:
        self.resumed.append(resumed)


def test_the_record_is_told_where_each_prompt_resumed() -> None:
    prompts, heard = conversation(21, 4), Heard()
    with keeping(model(), recorder=heard) as server:
        got = [server.ask(prompt) for prompt in prompts]
    assert heard.resumed == [cached(one) for one in got] and heard.resumed[-1] > 0


@IMAGES
@pytest.mark.slow
def test_what_memory_asks_back_is_given_up_one_by_one_but_for_what_is_in_use() -> None:
    prompts = conversation(22, 6)
    with keeping(model()) as server:
        for prompt in prompts:
            server.ask(prompt)
        idle(server.scheduler)
        cache = server.cache
        held = cache.held()
        assert held == cache.reclaimable() == cache.uncounted() > 0
        count = len(cache)
        freed = cache.evict()
        assert cache.held() == held - freed and len(cache) == count - 1
        while cache.evict():
            pass
        assert cache.held() == 0
        assert server.ask(prompts[-1]).ids == fresh(prompts)[-1].ids


def test_a_cancelled_prompt_leaves_no_lane_and_what_it_read() -> None:
    prompt = conversation(23, 6)[-1]
    target = model()
    with keeping(target) as server:
        generation = server.scheduler.submit(request(prompt))
        generation.cancel()
        read(generation)
        idle(server.scheduler)
        assert not server.scheduler.check_integrity() and not target.misuses
        assert server.ask(prompt).ids == fresh([prompt])[0].ids
    assert target.lanes() == ()


def test_ids_of_prompts_are_compared_and_not_their_hashes() -> None:
    engine = engine_of(model())
    prompt = turn(system(random.Random(24), 80), random.Random(25))
    first = engine.prompts.begin(prompt)
    assert first.ids.dtype == np.int32 and first.resumed == 0 and not engine.prompts.waits(first)


@IMAGES
def test_the_state_that_a_request_is_about_to_resume_is_spared_when_room_is_made_for_it() -> None:
    prompts = conversation(25, 5)
    with keeping(model()) as server:
        assert server.cache.peek(prompts[0]) is None
        for prompt in prompts[:-1]:
            server.ask(prompt)
        idle(server.scheduler)
        keep = server.cache.peek(prompts[-1])
        assert keep is not None and server.cache.peek(prompts[-1]) is keep
        while server.cache.evict(keep):
            pass
        assert len(server.cache) == 1 and server.cache.reclaimable(keep) == 0
        got = server.ask(prompts[-1])
    assert cached(got) == RULE.plan(prompts[-2]).starts[-1]
    assert got.ids == fresh(prompts)[-1].ids
