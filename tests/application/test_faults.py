"""A fault ends the request it belongs to and no other; the server goes on and nothing is left behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tensorfold.application.listeners import harmless
from tensorfold.application.ports.target_model import CapacityError, ModelCosts
from tensorfold.application.replies import Failed, GenerationRequest
from tensorfold.application.scheduler import ENGINE_FAULT, Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.drafting.sources import CHAINS, DraftSource, Widths
from tensorfold.domain.gates.gate import Cut
from tensorfold.domain.gates.stop_strings import StopStrings
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.streams import Stream
from tests.application.house import idle, law, read, request, serving
from tests.fakes.faulty_model import Fault, FaultyModel, Site
from tests.fakes.hash_head import HashHead
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, serial_references

STREAMS = 16
VICTIM = 5
LAW = law(21)
CASES = [SerialCase((i, 40, i + 1, 7), 24, Sampling(i, 1.0) if i % 2 else Sampling()) for i in range(STREAMS)]
EXPECTED = serial_references(LAW, CASES)


def hits_the_victim(prompt: tuple[int, ...]) -> bool:
    return prompt == CASES[VICTIM].prompt


def others_are_whole_and_only_the_victim_failed(scheduler: Scheduler, model: HashModel) -> None:
    got = [read(g) for g in [scheduler.submit(request(case)) for case in CASES]]
    for index, (one, reply) in enumerate(zip(got, EXPECTED, strict=True)):
        if index == VICTIM:
            assert one.failed and one.end == Failed(ENGINE_FAULT)
            assert tuple(one.ids) == reply.tokens[: len(one.ids)]
        else:
            assert one.ended and tuple(one.ids) == reply.tokens
    idle(scheduler)
    assert scheduler.counters.failed == 1
    assert model.lanes() == ()


@pytest.mark.parametrize("site", ["prefill", "launch", "collect", "keep"])
@pytest.mark.parametrize("after", [False, True])
def test_a_lasting_fault_in_the_model_ends_its_own_request_alone(site: Site, after: bool) -> None:
    inner = HashModel(LAW)
    model = FaultyModel(inner, [Fault(site, prompt=hits_the_victim, after=after)])
    with serving(model, settings=EngineSettings(parallel=STREAMS), sources=(CopySourceFactory(),)) as scheduler:
        others_are_whole_and_only_the_victim_failed(scheduler, inner)
        model.faults.clear()
        again = read(scheduler.submit(request(CASES[VICTIM])))
        assert again.ended and tuple(again.ids) == EXPECTED[VICTIM].tokens


@pytest.mark.parametrize("nth", [1, 2, 3, 7])
@pytest.mark.parametrize("site", ["launch", "collect", "keep", "propose", "discard"])
def test_a_passing_fault_in_a_shared_round_ends_nobody(site: Site, nth: int) -> None:
    inner = HashModel(LAW, head=HashHead(), costs=ModelCosts(((1, 1.0), (64, 2.0)), 0.01, (0.1, 0.2, 0.3)))
    faults = [Fault(site, nth=nth)]
    if site == "discard":
        faults.append(Fault("collect", nth=nth, after=True))
    cases = [SerialCase((i,), 24, case.sampling) for i, case in enumerate(CASES)]
    with serving(FaultyModel(inner, faults), settings=EngineSettings(parallel=STREAMS)) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in cases]]
        idle(scheduler)
    for one, reply in zip(got, serial_references(LAW, cases), strict=True):
        assert one.ended and tuple(one.ids) == reply.tokens


def test_a_request_whose_lane_cannot_be_opened_ends_alone() -> None:
    model = FaultyModel(HashModel(LAW), [Fault("open", nth=3)])
    with serving(model, settings=EngineSettings(parallel=4)) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in CASES]]
        assert [i for i, one in enumerate(got) if one.failed] == [2]
        assert all(tuple(one.ids) == r.tokens for i, (one, r) in enumerate(zip(got, EXPECTED, strict=True)) if i != 2)


def test_a_lane_that_does_not_close_is_found_when_the_server_is_idle() -> None:
    lines: list[str] = []
    inner = HashModel(LAW)
    model = FaultyModel(inner, [Fault("close", nth=1)])
    with serving(model, log=lines.append) as scheduler:
        assert read(scheduler.submit(request(CASES[0]))).ended
        idle(scheduler)
        for _ in range(200):
            if scheduler.counters.integrity_faults:
                break
            threading.Event().wait(0.01)
        assert scheduler.counters.integrity_faults == 1
        assert inner.lanes() == ()
    assert any("did not close" in line for line in lines) and any("integrity" in line for line in lines)


def test_a_stray_lane_that_cannot_be_closed_is_reported_and_the_server_serves() -> None:
    lines: list[str] = []
    model = FaultyModel(HashModel(LAW), [Fault("close")])
    with serving(model, log=lines.append) as scheduler:
        assert read(scheduler.submit(request(CASES[0]))).ended
        assert read(scheduler.submit(request(CASES[1]))).ended
        model.faults.clear()
    assert any("did not close" in line for line in lines)


class BrokenGate(StopStrings):
    """A gate whose rule raises on the first token of a reply."""

    def scan(self, tokens: Sequence[int]) -> Cut | None:
        raise RuntimeError("broken gate")


def test_a_fault_in_a_streams_own_rules_ends_that_stream_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = HashModel(LAW)
    with serving(inner, settings=EngineSettings(parallel=STREAMS)) as scheduler:
        make = scheduler.factory.stream

        def stream(asked: GenerationRequest) -> Stream:
            made = make(asked)
            if hits_the_victim(made.prompt):
                made._gates = (BrokenGate(TokenBytes([b"a"]), [b"x"]),)
            return made

        monkeypatch.setattr(scheduler.factory, "stream", stream)
        others_are_whole_and_only_the_victim_failed(scheduler, inner)


def test_a_log_that_cannot_be_written_ends_nobody() -> None:
    def broken(*told: object) -> None:
        raise BrokenPipeError

    model = FaultyModel(HashModel(LAW), [Fault("launch", nth=2), Fault("close", nth=1)])
    with serving(model, settings=EngineSettings(parallel=STREAMS), log=broken) as scheduler:
        scheduler._on_done = harmless(broken)
        got = [read(g) for g in [scheduler.submit(request(case)) for case in CASES]]
    for one, reply in zip(got, EXPECTED, strict=True):
        assert one.ended and tuple(one.ids) == reply.tokens


def test_when_planning_a_round_fails_the_round_is_serial_and_nobody_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **settings: object) -> tuple[int, ...]:
        raise ZeroDivisionError("broken policy")

    monkeypatch.setattr("tensorfold.application.drafts.allocate", broken)
    model = HashModel(law(22, habit=0.9))
    cases = [SerialCase((i, 3), 60) for i in range(4)]
    with serving(model, settings=EngineSettings(parallel=4), sources=(CopySourceFactory(),)) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in cases]]
        assert scheduler.counters.proposer_faults > 0
    for one, reply in zip(got, serial_references(model.law, cases), strict=True):
        assert one.ended and tuple(one.ids) == reply.tokens


def test_a_broken_source_factory_leaves_a_stream_without_that_source() -> None:
    class Broken:
        def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> DraftSource:
            raise OSError("no source")

    with serving(HashModel(LAW), sources=(Broken(), CopySourceFactory())) as scheduler:
        assert tuple(read(scheduler.submit(request(CASES[0]))).ids) == EXPECTED[0].tokens
        assert scheduler.counters.proposer_faults == 1


def test_a_fault_outside_any_stream_ends_the_running_ones_and_the_server_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inner = HashModel(LAW)
    with serving(inner, settings=EngineSettings(parallel=4)) as scheduler:
        choose = scheduler.engine._turns.take
        calls = {"left": 1}

        def broken(*arguments: Any) -> tuple[int, ...]:
            if calls["left"]:
                calls["left"] -= 1
                raise RuntimeError("broken turns")
            return choose(*arguments)

        monkeypatch.setattr(scheduler.engine._turns, "take", broken)
        first = read(scheduler.submit(request(CASES[0])))
        assert first.end == Failed(ENGINE_FAULT)
        assert tuple(read(scheduler.submit(request(CASES[1]))).ids) == EXPECTED[1].tokens
        idle(scheduler)
        assert inner.lanes() == ()


def test_a_request_beyond_capacity_waits_for_a_lane_or_is_refused_with_the_reason() -> None:
    inner = HashModel(LAW, max_lanes=2)
    with serving(inner, settings=EngineSettings(parallel=8)) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in CASES[:6]]]
        assert all(one.ended and tuple(one.ids) == r.tokens for one, r in zip(got, EXPECTED, strict=False))
    full: Callable[[], Exception] = lambda: CapacityError("The lane needs 3 GiB and 2 GiB are left.")  # noqa: E731
    with serving(FaultyModel(HashModel(LAW), [Fault("open", nth=1, error=full)])) as scheduler:
        refused = read(scheduler.submit(request(CASES[0])))
        assert refused.end == Failed("The lane needs 3 GiB and 2 GiB are left.", "context_length_exceeded")
        assert read(scheduler.submit(request(CASES[1]))).ended


def test_a_lane_is_rebuilt_when_keeping_its_rows_failed_in_the_middle_of_a_long_reply() -> None:
    case = SerialCase(tuple(range(50)), 60)
    expected = serial_references(LAW, [case])[0]
    inner = HashModel(LAW, chain_width=4, prefill_slice=8)
    model = FaultyModel(inner, [Fault("keep", nth=25), Fault("keep", nth=40, after=True)])
    with serving(model) as scheduler:
        got = read(scheduler.submit(request(case)))
        assert scheduler.counters.rebuilds == 2
    assert got.ended and tuple(got.ids) == expected.tokens
