"""Health tells the truth: loading, serving, draining, and a call that takes longer than its costs allow."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tensorfold.application.counters import Counters
from tensorfold.application.flight import Flight
from tensorfold.application.health import HealthService, Watchdog
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tests.application.house import idle, law, read, request, serving
from tests.fakes.clock import FakeClock, MachineClock
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase

FAST = EngineSettings(stall_factor=4.0, stall_grace_s=0.05)


def test_a_call_is_overdue_when_its_costs_and_the_grace_have_passed() -> None:
    clock = FakeClock()
    flight = Flight(clock, factor=4.0, grace_s=3.0)
    flight.depart("round", 500.0)
    clock.advance(5.0)
    assert flight.stuck() is None
    clock.advance(0.1)
    call = flight.stuck()
    assert call is not None and call.what == "round"
    flight.arrive()
    assert flight.stuck() is None


def test_host_work_between_calls_gets_the_grace_and_waiting_for_work_is_never_stuck() -> None:
    clock = FakeClock()
    flight = Flight(clock, factor=4.0, grace_s=3.0)
    flight.arrive()
    clock.advance(3.5)
    call = flight.stuck()
    assert call is not None and call.what == "host"
    flight.idle()
    clock.advance(1000.0)
    assert flight.stuck() is None


def test_a_wedged_engine_turns_health_red_and_back_and_dumps_stacks_once() -> None:
    gate = threading.Event()
    fault = Fault("launch", nth=2, error=None, block=gate)
    dumped: list[str] = []
    with serving(FaultyModel(HashModel(law(1)), [fault]), settings=FAST) as scheduler:
        health = HealthService(scheduler, {"device": "cpu"})
        watchdog = Watchdog(scheduler, dumped.append, period=0.005)
        assert health.report().ok
        watchdog.start()
        running = scheduler.submit(request(SerialCase((1, 2), 8)))
        assert fault.entered.wait(10)
        for _ in range(1000):
            if not health.report().ok and dumped:
                break
            threading.Event().wait(0.005)
        report = health.report()
        assert report.status == "stuck" and not report.ok and report.figures["busy"] == 1
        gate.set()
        assert read(running).ended
        idle(scheduler)
        assert health.status() == "ok"
        watchdog.stop()
        assert len(dumped) == 1 and "(round) is overdue" in dumped[0]
        assert not watchdog.look()


def test_a_wedge_in_a_draft_source_is_seen_too() -> None:
    gate, entered = threading.Event(), threading.Event()

    class Wedged:
        name = "wedged"

        def propose(self, tokens: object, limit: int) -> None:
            entered.set()
            gate.wait()

        def observe(self, *outcome: object) -> None:
            return None

    class Factory:
        def open(self, prompt: object, widths: object = None) -> Any:
            return Wedged()

    with serving(HashModel(law(1)), settings=FAST, sources=(Factory(),)) as scheduler:
        running = scheduler.submit(request(SerialCase((1, 2), 4)))
        assert entered.wait(10)
        for _ in range(1000):
            if HealthService(scheduler, {}).status() == "stuck":
                break
            threading.Event().wait(0.005)
        assert HealthService(scheduler, {}).status() == "stuck"
        gate.set()
        assert read(running).ended


def test_health_counts_what_was_served() -> None:
    with serving(HashModel(law(2)), settings=EngineSettings(parallel=3)) as scheduler:
        health = HealthService(scheduler, {"version": "1"})
        got = [read(g) for g in [scheduler.submit(request(SerialCase((i, i), 10))) for i in range(4)]]
        idle(scheduler)
        figures = health.report().figures
    assert figures["requests_total"] == 4 and figures["completion_tokens_total"] == sum(len(g.ids) for g in got)
    assert figures["prompt_tokens_total"] == 8 and figures["version"] == "1"
    assert figures["streams"] == {"decoding": 0, "prefilling": 0, "paused": 0, "max": 3}
    assert "memory" not in figures
    assert figures["busy"] == 0 and figures["requests_waiting"] == 0


def test_health_follows_the_servers_life() -> None:
    begin, model = threading.Event(), HashModel(law(3))

    def load() -> Any:
        begin.wait(10)
        raise RuntimeError("no weights")

    loading = Scheduler(load, EngineSettings(), MachineClock(), counters=Counters())
    loading.start()
    assert HealthService(loading, {}).status() == "loading"
    assert not Watchdog(loading, lambda line: None).look()
    begin.set()
    with pytest.raises(RuntimeError):
        loading.wait_ready()
    assert HealthService(loading, {}).status() == "failed"
    with serving(model) as scheduler:
        scheduler.drain()
        assert HealthService(scheduler, {}).status() == "draining"


def test_a_watchdog_that_never_started_can_be_stopped() -> None:
    with serving(HashModel(law(4))) as scheduler:
        Watchdog(scheduler, lambda line: None).stop()
