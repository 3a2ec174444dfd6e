"""The engine's thread outlives its device's worst manners, and health and costs stay true through them."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from tensorfold.application.engine import Engine
from tensorfold.application.health import HealthService
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.streams import Stream
from tests.application.house import idle, law, read, request, serving
from tests.fakes.clock import FakeClock
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_model import HashModel
from tests.fakes.paced_model import PacedModel
from tests.fakes.serial import SerialCase, serial_references
from tests.fakes.wrapped_model import WrappedModel

LAW = law(51)
CASE = SerialCase((1, 2, 3), 8)
REPLY = serial_references(LAW, [CASE])[0]
FAST = EngineSettings(stall_grace_s=0.05)


def wait_for(fact: Callable[[], bool], what: str) -> None:
    for _ in range(6000):
        if fact():
            return
        threading.Event().wait(0.005)
    raise AssertionError(f"never came: {what}")


def test_a_device_that_cannot_name_its_lanes_does_not_end_the_engine() -> None:
    class Nameless(WrappedModel):
        def lanes(self) -> tuple[int, ...]:
            raise RuntimeError("no answer")

    lines: list[str] = []
    with serving(Nameless(HashModel(LAW)), log=lines.append) as scheduler:
        assert tuple(read(scheduler.submit(request(CASE))).ids) == REPLY.tokens
        idle(scheduler)
        assert tuple(read(scheduler.submit(request(CASE))).ids) == REPLY.tokens
    assert any("integrity" in line and "no answer" in line for line in lines)


def test_a_device_that_hangs_while_the_idle_engine_checks_its_books_is_seen_and_holds_up_nobody_else() -> None:
    gate = threading.Event()
    stray = Fault("close", nth=1)
    hang = Fault("close", nth=1, error=None, block=gate)
    inner = HashModel(LAW)
    model = FaultyModel(inner, [stray, hang])
    with serving(model, settings=FAST) as scheduler:
        health = HealthService(scheduler, {})
        assert read(scheduler.submit(request(CASE))).ended
        assert hang.entered.wait(10)
        wait_for(lambda: health.status() == "stuck", "a red light")
        submitted = scheduler.submit(request(CASE))
        assert scheduler.loads() == (0, 0, 1)
        gate.set()
        assert tuple(read(submitted).ids) == REPLY.tokens
        idle(scheduler)
        wait_for(lambda: health.status() == "ok", "a green light")
        assert inner.lanes() == ()


def test_a_device_that_cannot_shut_down_is_told_of_in_the_log_and_the_server_ends(
    recwarn: pytest.WarningsRecorder,
) -> None:
    class Stubborn(WrappedModel):
        def shutdown(self) -> None:
            raise RuntimeError("still busy")

    lines: list[str] = []
    with serving(Stubborn(HashModel(LAW)), log=lines.append) as scheduler:
        assert read(scheduler.submit(request(CASE))).ended
    assert scheduler.phase == "stopped"
    assert any("still busy" in line for line in lines)
    assert not recwarn.list


class Watched:
    """A clock's `advance` that notes, of each wait, which call is in flight and how long it is allowed to take."""

    def __init__(self, clock: FakeClock, waits: Iterator[float]) -> None:
        self.engine: Engine | None = None
        self.calls: list[tuple[str, float]] = []
        self._clock, self._waits = clock, waits

    def __call__(self, seconds: float) -> None:
        call = self.engine.flight._call if self.engine is not None else None
        assert call is not None
        self.calls.append((call.what, call.overdue - call.began))
        self._clock.advance(next(self._waits))


def test_one_slow_prompt_slice_does_not_hide_the_next_one() -> None:
    clock = FakeClock()
    waits = Watched(clock, itertools.chain([60.0], itertools.repeat(0.001)))
    engine = Engine(PacedModel(HashModel(LAW, prefill_slice=16), waits, 0.0, 0.001), EngineSettings(), clock)
    waits.engine = engine
    live = engine.open(Stream((1,) * 100, max_tokens=4, sampling=Sampling(), stop_ids=frozenset()))
    engine.fill(live)
    engine.fill(live)
    (_, first), (_, second) = waits.calls
    assert first < second < 2.0 * first


def test_a_reply_fed_again_into_a_fresh_lane_is_many_calls_each_with_its_own_time() -> None:
    clock = FakeClock()
    waits = Watched(clock, itertools.repeat(1.0))
    paced = PacedModel(HashModel(LAW, chain_width=4), waits, 1.0)
    engine = Engine(FaultyModel(paced, [Fault("keep", nth=40)]), EngineSettings(), clock)
    waits.engine = engine
    live = engine.open(Stream((7,), max_tokens=60, sampling=Sampling(), stop_ids=frozenset()))
    while live.stream.finish is None:
        engine.round([live])
    assert engine.counters.rebuilds == 1
    assert len(waits.calls) == 60 + 10
    assert {what for what, _ in waits.calls} == {"round"}
