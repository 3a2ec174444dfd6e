"""Planted faults strike where they are planted and nowhere else, and leave lanes where the port says they stand."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from tensorfold.application.ports.target_model import LaneWindow, ProposeSpec, RoundBatch, Span, Ticket
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import chain
from tests.fakes.clock import FakeClock
from tests.fakes.faulty_model import SITES, Fault, FaultyModel, PlantedError, Site
from tests.fakes.hash_head import HashHead
from tests.fakes.hash_model import HashModel
from tests.fakes.paced_model import PacedModel


def _model(*faults: Fault) -> FaultyModel:
    return FaultyModel(HashModel(head=HashHead()), faults)


def _lane(model: FaultyModel, *prompt: int) -> int:
    lane = model.open(64)
    if len(prompt) > 1:
        model.collect(model.prefill(lane, np.array(prompt, dtype=np.int64), Span(0, len(prompt) - 1)))
    return lane


def _launch(model: FaultyModel, *lanes: tuple[int, int]) -> Ticket:
    return model.launch(RoundBatch(tuple(LaneWindow(lane, at, chain(5), Sampling()) for lane, at in lanes)))


def _round(model: FaultyModel, *lanes: tuple[int, int]) -> Ticket:
    ticket = _launch(model, *lanes)
    model.collect(ticket)
    model.keep(ticket, [(0,)] * len(lanes))
    model.propose([ProposeSpec(lane, 1, 1, Sampling()) for lane, _ in lanes])
    return ticket


def _everything(model: FaultyModel) -> None:
    """One call of every site."""
    lane = _lane(model, 1, 2)
    _round(model, (lane, 1))
    model.discard(_launch(model, (lane, 2)))
    image = model.export(lane)
    for other in (model.fork(lane), model.restore(image, 8), lane):
        model.close(other)


@pytest.mark.parametrize("site", SITES)
def test_a_fault_strikes_at_its_site(site: Site) -> None:
    fault = Fault(site)
    with pytest.raises(PlantedError):
        _everything(_model(fault))
    assert fault.struck == 1


def test_without_a_fault_every_call_goes_through() -> None:
    model = _model()
    _everything(model)
    assert model.lanes() == ()
    model.shutdown()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("site", ["launch", "collect"])
def test_after_a_failed_launch_or_collect_the_lane_stands_where_it_stood(site: Site, after: bool) -> None:
    model = _model(fault := Fault(site, times=1, after=after))
    lane = _lane(model, 1, 2, 3)
    with pytest.raises(PlantedError):
        ticket = _launch(model, (lane, 2))
        try:
            model.collect(ticket)
        except PlantedError:
            model.discard(ticket)
            raise
    assert fault.struck == 1
    _round(model, (lane, 2))


def test_the_nth_call_alone_is_struck() -> None:
    model = _model(Fault("open", nth=3))
    model.open(8)
    model.open(8)
    with pytest.raises(PlantedError):
        model.open(8)
    model.open(8)


def test_times_bounds_how_often_a_fault_strikes() -> None:
    model = _model(Fault("open", times=2))
    for _ in range(2):
        with pytest.raises(PlantedError):
            model.open(8)
    model.open(8)


def test_a_fault_of_a_lane_strikes_launches_that_carry_it() -> None:
    model = _model()
    good, bad = _lane(model, 1, 2), _lane(model, 3, 4)
    model.faults.append(Fault("launch", lanes={bad}))
    _round(model, (good, 1))
    with pytest.raises(PlantedError):
        _launch(model, (good, 2), (bad, 1))
    _round(model, (good, 2))


@pytest.mark.parametrize("site", ["prefill", "launch", "collect", "keep", "propose", "close"])
def test_a_fault_of_a_prompt_strikes_its_lane_alone(site: Site) -> None:
    model = _model(Fault(site, prompt=lambda ids: 9 in ids))
    good = _lane(model, 1, 2)
    _round(model, (good, 1))
    model.close(good)
    with pytest.raises(PlantedError):
        bad = _lane(model, 1, 9, 2)
        _round(model, (bad, 2))
        model.close(bad)


def test_a_prompt_of_one_id_and_a_forks_prompt_are_known_too() -> None:
    model = _model(Fault("close", prompt=lambda ids: ids == (5,)))
    lane = model.open(8)
    _round(model, (lane, 0))
    copy = model.fork(lane)
    for each in (lane, copy):
        with pytest.raises(PlantedError):
            model.close(each)


def test_a_fault_without_an_error_only_waits() -> None:
    gate = threading.Event()
    fault = Fault("collect", error=None, block=gate, nth=1)
    model, done = _model(fault), threading.Event()

    def work() -> None:
        lane = model.open(8)
        model.collect(_launch(model, (lane, 0)))
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert fault.entered.wait(10.0) and not done.is_set()
    gate.set()
    thread.join(10.0)
    assert done.is_set() and fault.struck == 1


@pytest.mark.parametrize(
    ("site", "call"),
    [("open", lambda model: model.open(8)), ("fork", lambda model: model.fork(model.lanes()[0]))],
)
def test_a_lane_made_before_a_late_fault_does_not_stay(site: Site, call: Callable[[FaultyModel], int]) -> None:
    model = _model()
    model.open(8)
    model.faults.append(Fault(site, after=True))
    with pytest.raises(PlantedError):
        call(model)
    assert len(model.lanes()) == 1


def test_paced_launches_take_their_time_where_they_are_waited_for() -> None:
    clock = FakeClock()
    model = PacedModel(HashModel(), clock.advance, launch_s=lambda rows: 0.5 * rows, prefill_row_s=0.125)
    lane = model.open(16)
    began = clock.monotonic()
    prefill = model.prefill(lane, np.array([1, 2, 3], dtype=np.int64), Span(0, 2))
    assert clock.monotonic() == began
    model.collect(prefill)
    assert clock.monotonic() == began + 0.25
    ticket = model.launch(RoundBatch((LaneWindow(lane, 2, chain(3, [4]), Sampling()),)))
    model.collect(ticket)
    model.keep(ticket, [(0,)])
    assert clock.monotonic() == began + 1.25 and model.slept_s == 1.25
    model.discard(model.launch(RoundBatch((LaneWindow(lane, 3, chain(3), Sampling()),))))
    assert model.slept_s == 1.25
