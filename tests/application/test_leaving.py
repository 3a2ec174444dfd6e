"""Whoever leaves frees what it held, wherever it stood; whoever stays gets the reply it would have had alone."""

from __future__ import annotations

import threading
from typing import NoReturn

import pytest

from tensorfold.application.counters import Counters
from tensorfold.application.errors import ContextExceededError, OverloadedError
from tensorfold.application.replies import Cancelled, Failed
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tests.application.house import idle, law, read, request, serving
from tests.fakes.clock import MachineClock
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, serial_references

LAW = law(31)
CASE = SerialCase((1, 2, 3), 40)
REPLY = serial_references(LAW, [CASE])[0]


def test_a_request_cancelled_while_it_waits_never_starts() -> None:
    gate = threading.Event()
    fault = Fault("launch", nth=1, error=None, block=gate)
    model = FaultyModel(HashModel(LAW), [fault])
    with serving(model, settings=EngineSettings(parallel=1)) as scheduler:
        first = scheduler.submit(request(CASE))
        assert fault.entered.wait(10)
        second = scheduler.submit(request(SerialCase((9, 9), 40)))
        assert scheduler.loads() == (1, 0, 1)
        second.cancel()
        second.cancel()
        gate.set()
        assert isinstance(read(second).end, Cancelled)
        assert tuple(read(first).ids) == REPLY.tokens
        assert scheduler.counters.cancelled == 1 and scheduler.counters.prompt_tokens == 3


def test_a_request_cancelled_while_its_prompt_is_read_stops_between_slices() -> None:
    gate = threading.Event()
    fault = Fault("prefill", nth=2, error=None, block=gate)
    inner = HashModel(LAW, prefill_slice=8)
    with serving(FaultyModel(inner, [fault])) as scheduler:
        long = scheduler.submit(request(SerialCase(tuple([5] * 400), 4)))
        assert fault.entered.wait(10)
        long.cancel()
        gate.set()
        assert isinstance(read(long).end, Cancelled)
        idle(scheduler)
        assert fault.calls <= 3 and inner.lanes() == ()
        assert tuple(read(scheduler.submit(request(CASE))).ids) == REPLY.tokens


def test_a_running_request_that_is_cancelled_ends_at_its_next_round() -> None:
    inner = HashModel(LAW)
    with serving(inner) as scheduler:
        long = scheduler.submit(request(SerialCase((4, 4), 4000)))
        assert long.next(10) is not None
        long.cancel()
        assert isinstance(read(long).end, Cancelled)
        idle(scheduler)
        assert inner.lanes() == ()


def test_a_short_reply_runs_while_a_long_prompt_is_read() -> None:
    inner = HashModel(LAW, prefill_slice=4)
    with serving(inner, settings=EngineSettings(parallel=2)) as scheduler:
        long = scheduler.submit(request(SerialCase(tuple([5] * 2000), 2)))
        short = scheduler.submit(request(CASE))
        assert tuple(read(short).ids) == REPLY.tokens
        assert read(long).ended


def test_a_full_queue_refuses_at_once_and_the_waiting_ones_are_served() -> None:
    gate = threading.Event()
    fault = Fault("launch", nth=1, error=None, block=gate)
    with serving(FaultyModel(HashModel(LAW), [fault]), settings=EngineSettings(parallel=1, queue=2)) as scheduler:
        running = [scheduler.submit(request(CASE))]
        assert fault.entered.wait(10)
        running += [scheduler.submit(request(CASE)) for _ in range(2)]
        with pytest.raises(OverloadedError, match="2 requests wait already") as refusal:
            scheduler.submit(request(CASE))
        assert refusal.value.retry_after > 0
        gate.set()
        assert all(tuple(read(one).ids) == REPLY.tokens for one in running)


def test_background_requests_let_foreground_ones_pass() -> None:
    gate = threading.Event()
    fault = Fault("launch", nth=1, error=None, block=gate)
    order: list[str] = []
    with serving(FaultyModel(HashModel(LAW), [fault]), settings=EngineSettings(parallel=1)) as scheduler:
        first = scheduler.submit(request(CASE))
        assert fault.entered.wait(10)
        scheduler._on_done = lambda generation, stats, reason: order.append(generation.request.label)
        behind = scheduler.submit(request(CASE, background=True, label="background"))
        ahead = scheduler.submit(request(CASE, label="foreground"))
        gate.set()
        for one in (first, behind, ahead):
            read(one)
    assert order == ["", "foreground", "background"]


def test_a_prompt_or_reply_beyond_the_window_is_refused_before_anything_is_queued() -> None:
    with serving(HashModel(LAW), context=100) as scheduler:
        with pytest.raises(ContextExceededError, match="maximum context length is 100 tokens") as refusal:
            scheduler.submit(request(SerialCase(tuple([1] * 90), 20)))
        assert "largest reply that fits this prompt is 10" in refusal.value.message
        assert refusal.value.code == "context_length_exceeded"
        with pytest.raises(ContextExceededError, match="at most 99 tokens"):
            scheduler.submit(request(SerialCase(tuple([1] * 100), 1), ignore_eos=False))
        assert scheduler.counters.requests == 0
        assert len(read(scheduler.submit(request(SerialCase(tuple([1] * 90), 10)))).ids) == 10


def test_a_reply_without_a_limit_takes_the_default_capped_by_the_room_left() -> None:
    from tensorfold.application.replies import GenerationRequest
    from tensorfold.domain.sampling import Sampling

    with serving(HashModel(LAW), context=100, max_tokens=50) as scheduler:
        assert len(read(scheduler.submit(GenerationRequest((1,) * 10, Sampling()))).ids) == 50
        assert len(read(scheduler.submit(GenerationRequest((1,) * 93, Sampling()))).ids) == 7


def test_the_models_end_tokens_end_a_reply_unless_they_are_ignored() -> None:
    from tensorfold.application.replies import GenerationRequest
    from tensorfold.domain.sampling import Sampling

    end = REPLY.tokens[7]
    first = REPLY.tokens.index(end)
    with serving(HashModel(LAW), stop_ids=frozenset({end})) as scheduler:
        ended = read(scheduler.submit(GenerationRequest(CASE.prompt, Sampling(), 40)))
        ignored = read(scheduler.submit(GenerationRequest(CASE.prompt, Sampling(), 40, ignore_eos=True)))
    assert tuple(ended.ids) == REPLY.tokens[: first + 1]
    assert tuple(ignored.ids) == REPLY.tokens


def test_a_stopping_server_ends_what_runs_and_waits_and_takes_nothing_new() -> None:
    gate = threading.Event()
    fault = Fault("launch", nth=1, error=None, block=gate)
    inner = HashModel(LAW)
    with serving(FaultyModel(inner, [fault]), settings=EngineSettings(parallel=1)) as scheduler:
        running = scheduler.submit(request(SerialCase((1,), 4000)))
        assert fault.entered.wait(10)
        waiting = scheduler.submit(request(CASE))
        scheduler.drain()
        with pytest.raises(OverloadedError, match="shutting down"):
            scheduler.submit(request(CASE))
        assert not scheduler.stop(0.05)
        gate.set()
        assert read(running).end == Failed("The server is shutting down.")
        assert read(waiting).end == Failed("The server is shutting down.")
        assert scheduler.stop(10) and scheduler.phase == "stopped"


def unloadable() -> NoReturn:
    raise ValueError("no weights")


def test_a_model_that_cannot_be_loaded_fails_the_start_and_leaves_no_thread() -> None:
    scheduler = Scheduler(unloadable, EngineSettings(), MachineClock(), counters=Counters())
    scheduler.start()
    with pytest.raises(ValueError, match="no weights"):
        scheduler.wait_ready()
    assert scheduler.phase == "failed"
    assert scheduler.stop(5)


def test_a_server_stopped_before_it_started_has_nothing_to_end() -> None:
    scheduler = Scheduler(unloadable, EngineSettings(), MachineClock(), counters=Counters())
    assert scheduler.stop(1)
    assert not scheduler.wait_ready(0)
