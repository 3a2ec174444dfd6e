"""Memory never surprises: requests wait, pause, give lanes up and come back, and no reply is another one for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorfold.application.generation import Generation
from tensorfold.application.health import HealthService
from tensorfold.application.replies import Failed, GenerationRequest
from tensorfold.application.scheduler import ENGINE_FAULT, OUT_OF_MEMORY
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.sampling import Sampling
from tests.application.house import idle, law, read, request
from tests.application.memory_house import ROW, WEIGHTS, metered
from tests.application.test_exactness import case_lists, equal
from tests.fakes.faulty_model import Fault, Site
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, serial_references

PROPERTY = settings(derandomize=True, deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
LAW = law(71)


def open_ended(case: SerialCase) -> GenerationRequest:
    return replace(request(case), max_tokens=None)


LONG = [SerialCase((i, 9, i + 1), 60, Sampling(i, 1.0) if i % 2 else Sampling()) for i in range(4)]


@PROPERTY
@given(case_lists(), st.integers(96, 260), st.integers(4, 40), st.booleans(), st.booleans())
@pytest.mark.slow
def test_replies_equal_serial_ones_however_little_memory_there_is(
    the_cases: tuple[HashLaw, list[SerialCase]], rows: int, ahead: int, whole: bool, binds: bool
) -> None:
    the_law, cases = the_cases
    model = HashModel(the_law, chain_width=8, prefill_slice=4, audit=True)
    engine = EngineSettings(parallel=6, force_windows=True)
    if not whole:
        cases = [SerialCase(c.prompt, 60, c.sampling, c.stop_ids, c.stops) for c in cases]
    with metered(
        model, rows, ahead=ahead, binds=binds, settings=engine, sources=(CopySourceFactory(),), max_tokens=60
    ) as house:
        got = [
            read(g) for g in [house.scheduler.submit(request(case) if whole else open_ended(case)) for case in cases]
        ]
        idle(house.scheduler)
        assert not house.scheduler.check_integrity() and not model.misuses
    for one, reply in zip(got, serial_references(the_law, cases), strict=True):
        equal(one.ids, one.end, reply)


def test_streams_that_no_longer_fit_pause_and_give_lanes_up_and_their_replies_are_the_serial_ones() -> None:
    with metered(HashModel(LAW), 70, ahead=4, max_tokens=60, settings=EngineSettings(parallel=4)) as house:
        streams = [house.scheduler.submit(open_ended(case)) for case in LONG]
        got = [read(generation) for generation in streams]
        idle(house.scheduler)
        counters = house.scheduler.counters
    assert counters.paused > 0 and counters.dropped > 0 and counters.failed == 0
    for one, reply in zip(got, serial_references(LAW, LONG), strict=True):
        equal(one.ids, one.end, reply)


def test_a_reply_limit_that_was_asked_for_is_kept_free_from_the_start_so_its_stream_never_pauses() -> None:
    with metered(HashModel(LAW), 100, settings=EngineSettings(parallel=4)) as house:
        got = [read(g) for g in [house.scheduler.submit(request(case)) for case in LONG]]
        assert (house.scheduler.counters.paused, house.scheduler.counters.dropped) == (0, 0)
    for one, reply in zip(got, serial_references(LAW, LONG), strict=True):
        equal(one.ids, one.end, reply)


def test_a_request_that_fits_the_window_and_not_the_memory_is_refused_with_what_fits_and_the_next_one_runs() -> None:
    with metered(HashModel(LAW), 40) as house:
        refused = read(house.scheduler.submit(request(LONG[0])))
        assert isinstance(refused.end, Failed) and refused.end.code == "context_length_exceeded"
        assert refused.end.message.startswith("This model's maximum context length is 40 tokens with the memory")
        assert "you requested 63 tokens (3 in the prompt, 60 in the completion)" in refused.end.message
        assert "The largest reply that fits this prompt is 37 tokens." in refused.end.message
        again = read(house.scheduler.submit(request(replace(LONG[0], max_tokens=37))))
        assert tuple(again.ids) == serial_references(LAW, LONG)[0].tokens[:37]


def test_a_prompt_that_memory_does_not_hold_is_told_how_long_it_may_be() -> None:
    with metered(HashModel(LAW), 40) as house:
        asked = replace(open_ended(SerialCase(tuple(range(50)), 9)), param="messages")
        refused = read(house.scheduler.submit(asked))
        assert isinstance(refused.end, Failed)
        assert "you requested 51 tokens (50 in the messages)" in refused.end.message
        assert "Shorten the messages to at most 39 tokens." in refused.end.message


def test_a_reply_without_a_limit_is_capped_by_what_memory_leaves_it() -> None:
    with metered(HashModel(LAW), 40, max_tokens=200, ahead=2048) as house:
        got = read(house.scheduler.submit(open_ended(LONG[0])))
    assert got.ended and len(got.ids) == 37


def test_a_stream_ends_only_when_memory_cannot_carry_it_alone_and_is_told_of_parallel() -> None:
    with metered(HashModel(LAW), 100) as house:
        stolen: list[int] = []

        def steal() -> None:
            if not stolen:
                stolen.append(70 * ROW)
                house.memory.allocate(stolen[0])

        house.faults.append(Fault("keep", nth=20, error=None))
        fault = house.faults[0]
        fault.happen = steal  # type: ignore[method-assign]
        ended = read(house.scheduler.submit(open_ended(LONG[0])))
        house.memory.free(stolen[0])
        assert isinstance(ended.end, Failed) and "`--parallel`" in ended.end.message
        assert "memory ran out" in ended.end.message and ended.end.code is None
        assert tuple(ended.ids) == serial_references(LAW, LONG)[0].tokens[: len(ended.ids)]
        house.faults.clear()
        assert read(house.scheduler.submit(request(LONG[1]))).ended


@pytest.mark.parametrize("site", ["open", "prefill", "collect_prefill", "launch", "collect", "keep", "propose"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.slow
def test_memory_that_cannot_be_had_for_one_request_ends_that_request_alone(site: Site, after: bool) -> None:
    def victim(prompt: tuple[int, ...]) -> bool:
        return prompt == LONG[2].prompt

    model = HashModel(LAW)
    fault = Fault(site, prompt=victim, after=after, error=lambda: MemoryError("no bytes"))
    if site == "open":
        fault = Fault(site, nth=3, after=after, error=lambda: MemoryError("no bytes"))
    with metered(model, 1000, faults=[fault], settings=EngineSettings(parallel=4)) as house:
        got = [read(g) for g in [house.scheduler.submit(request(case)) for case in LONG]]
        idle(house.scheduler)
        expected = serial_references(LAW, LONG)
        for index, (one, reply) in enumerate(zip(got, expected, strict=True)):
            if index == 2 and one.failed:
                assert one.end == Failed(OUT_OF_MEMORY)
            else:
                equal(one.ids, one.end, reply)
        assert house.scheduler.counters.failed == (site != "propose")
        house.faults.clear()
        assert tuple(read(house.scheduler.submit(request(LONG[2]))).ids) == expected[2].tokens
        idle(house.scheduler)
        house.scheduler.check_integrity()


def test_freed_buffers_are_handed_back_when_the_server_is_idle_and_when_memory_cannot_be_had() -> None:
    fault = Fault("launch", nth=2, error=lambda: MemoryError("no bytes"))
    with metered(HashModel(LAW), 1000, faults=[fault]) as house:
        assert read(house.scheduler.submit(request(LONG[0]))).ended
        idle(house.scheduler)
        assert house.memory.releases >= 1


def test_a_reply_that_is_read_again_and_draws_other_tokens_ends_its_stream() -> None:
    class Forgetful(HashModel):
        """Lanes after the first four begin with another state."""

        opened = 0

        def open(self, capacity: int) -> int:
            lane = super().open(capacity)
            self.opened += 1
            self._lanes[lane].state ^= self.opened > len(LONG)
            return lane

    with metered(Forgetful(LAW), 70, ahead=4, max_tokens=60, settings=EngineSettings(parallel=4)) as house:
        got = [read(generation) for generation in [house.scheduler.submit(open_ended(case)) for case in LONG]]
        dropped = house.scheduler.counters.dropped
    assert 0 < sum(one.end == Failed(ENGINE_FAULT) for one in got) <= dropped
    assert any("drew other tokens than before" in line for line in house.lines)
    for one, reply in zip(got, serial_references(LAW, LONG), strict=True):
        assert tuple(one.ids) == reply.tokens[: len(one.ids)]


@pytest.mark.parametrize("point", range(1, 60, 4))
def test_a_stream_that_leaves_at_any_point_leaves_no_lane_and_nothing_reserved(point: int) -> None:
    """Filling, running, paused, or without its lane."""
    model = HashModel(LAW, prefill_slice=2)
    with metered(model, 70, ahead=4, max_tokens=60, settings=EngineSettings(parallel=4)) as house:
        streams: list[Generation] = []

        class Leaver(Fault):
            def happen(self) -> None:
                for generation in streams[1::2]:
                    generation.cancel()

        house.faults.append(Leaver("collect", nth=point, error=None))
        streams += [house.scheduler.submit(open_ended(case)) for case in LONG]
        got = [read(generation) for generation in streams]
        idle(house.scheduler)
        assert model.lanes() == () and house.memory.active() == WEIGHTS and not model.misuses
        assert not house.scheduler.check_integrity()
        for one, reply in list(zip(got, serial_references(LAW, LONG), strict=True))[::2]:
            equal(one.ids, one.end, reply)
        assert read(house.scheduler.submit(request(LONG[1]))).ended


@pytest.mark.parametrize("binds", [True, False])
def test_health_tells_what_memory_comes_to_and_who_waits_for_it(binds: bool) -> None:
    seen: list[Mapping[str, object]] = []

    class Look(Fault):
        def happen(self) -> None:
            seen.append(HealthService(house.scheduler, {}).report().figures)

    engine = EngineSettings(parallel=4)
    with metered(HashModel(LAW), 70, ahead=4, binds=binds, max_tokens=60, settings=engine) as house:
        house.faults.append(Look("collect", error=None))
        got = [read(g) for g in [house.scheduler.submit(open_ended(case)) for case in LONG]]
        idle(house.scheduler)
        seen.append(HealthService(house.scheduler, {}).report().figures)
        plan, peak = house.admission.plan, house.memory.peak()
    assert all(one.ended for one in got)
    *running, at_rest = [cast("Mapping[str, int]", figures["memory"]) for figures in seen]
    whole = {"budget_bytes": plan.budget.process, "model_bytes": plan.budget.allocator, "weights_bytes": WEIGHTS}
    assert all(whole.items() <= one.items() for one in running)
    assert all(0 < one["reserved_bytes"] <= plan.room for one in running)
    assert at_rest["reserved_bytes"] == 0 and at_rest["kept_prompts_bytes"] == 0
    assert (at_rest.get("peak_bytes"), at_rest.get("active_bytes")) == ((peak, WEIGHTS) if binds else (None, None))
    waiting = [cast("Mapping[str, int]", figures["streams"])["paused"] for figures in seen]
    assert max(waiting) > 0 and waiting[-1] == 0


def test_the_weights_are_all_that_stays_behind() -> None:
    with metered(HashModel(LAW), 1000) as house:
        read(house.scheduler.submit(request(LONG[0])))
        idle(house.scheduler)
        assert house.memory.active() == WEIGHTS
