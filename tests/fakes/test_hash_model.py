"""What the hash model offers beyond the port: audits, thread and misuse checks, a head, time of its own."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest

from tensorfold.application.ports.target_model import (
    CapacityError,
    Chain,
    LaneWindow,
    Lattice,
    ProposeSpec,
    RoundBatch,
    Span,
    TargetModel,
    Ticket,
)
from tensorfold.domain.sampling import Sampling
from tensorfold.domain.windows import Window, chain
from tests.fakes.hash_faults import POISON, GraphModel
from tests.fakes.hash_head import HashDrafter, HashHead
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.misuse import MisuseError
from tests.fakes.serial import serial_reference


def _lane(model: TargetModel, prompt: list[int]) -> int:
    lane = model.open(200)
    if len(prompt) > 1:
        model.collect(model.prefill(lane, np.array(prompt, dtype=np.int64), Span(0, len(prompt) - 1)))
    return lane


def _launch(model: TargetModel, lane: int, position: int, window: Window) -> Ticket:
    return model.launch(RoundBatch((LaneWindow(lane, position, window, Sampling()),)))


def test_an_audit_tells_what_each_keep_left_behind() -> None:
    model = HashModel(audit=True)
    lane = _lane(model, [1, 2, 3])
    ticket = _launch(model, lane, 2, chain(3, [4, 5, 6]))
    model.collect(ticket)
    model.keep(ticket, [(0, 1, 2)])
    model.close(lane)
    trail = model.trails()[lane]
    assert trail.absorbed == [1, 2, 3, 4, 5]
    (kept,) = trail.keeps
    assert (kept.length, kept.kept, kept.state) == (5, (3, 4, 5), model.law.state_of([1, 2, 3, 4, 5]))


def test_a_forks_trail_begins_with_its_originals() -> None:
    model = HashModel(audit=True)
    lane = _lane(model, [1, 2, 3])
    copy = model.fork(lane)
    image = model.export(lane)
    ticket = _launch(model, copy, 2, chain(9))
    model.collect(ticket)
    model.keep(ticket, [(0,)])
    assert model.trail(copy).absorbed == [1, 2, 9] and model.trail(lane).absorbed == [1, 2]
    assert model.trail(model.restore(image, 8)).absorbed == [1, 2]


def test_state_and_length_of_open_lanes_can_be_read() -> None:
    model = HashModel()
    lane = _lane(model, [1, 2, 3])
    assert (model.state(lane), model.length(lane)) == (model.law.state_of([1, 2]), 2)


def test_unsettled_launches_are_named_until_they_are_kept() -> None:
    model = HashModel()
    lane = _lane(model, [1, 2])
    ticket = _launch(model, lane, 1, chain(2))
    assert model.unsettled() == (ticket.id,)
    model.collect(ticket)
    model.keep(ticket, [(0,)])
    assert model.unsettled() == ()


def test_a_launch_whose_lanes_all_closed_may_still_be_discarded_once() -> None:
    model = HashModel()
    lane = _lane(model, [1, 2])
    ticket = _launch(model, lane, 1, chain(2))
    model.close(lane)
    assert model.unsettled() == ()
    model.discard(ticket)
    with pytest.raises(MisuseError):
        model.discard(ticket)


def test_rows_of_a_closed_lane_cannot_stay_but_its_neighbours_can() -> None:
    model = HashModel()
    one, two = _lane(model, [1, 2]), _lane(model, [3, 4])
    windows = tuple(LaneWindow(lane, 1, chain(5), Sampling()) for lane in (one, two))
    ticket = model.launch(RoundBatch(windows))
    model.collect(ticket)
    model.close(one)
    with pytest.raises(MisuseError):
        model.keep(ticket, [(0,), (0,)])
    model.keep(ticket, [(), (0,)])
    assert model.length(two) == 2


def test_a_misused_launch_leaves_no_lane_blocked() -> None:
    model = HashModel()
    one, two = _lane(model, [1, 2]), _lane(model, [3, 4])
    good, bad = LaneWindow(one, 1, chain(5), Sampling()), LaneWindow(two, 9, chain(5), Sampling())
    with pytest.raises(MisuseError):
        model.launch(RoundBatch((good, bad)))
    assert model.unsettled() == () and model.collect(model.launch(RoundBatch((good,)))).tokens[0][0] >= 0


def test_lanes_run_out_with_a_sentence() -> None:
    model = HashModel(max_lanes=2)
    model.open(8)
    model.open(8)
    with pytest.raises(CapacityError, match="All 2 lanes are in use"):
        model.open(8)


def test_a_second_thread_is_refused() -> None:
    model, caught = HashModel(), list[BaseException]()
    model.open(8)

    def intrude() -> None:
        try:
            model.open(8)
        except MisuseError as error:
            caught.append(error)

    thread = threading.Thread(target=intrude)
    thread.start()
    thread.join()
    assert len(caught) == 1 and len(model.lanes()) == 1


def test_a_model_that_may_change_threads_takes_calls_from_any() -> None:
    model = HashModel(one_thread=False)
    model.open(8)
    thread = threading.Thread(target=lambda: model.open(8))
    thread.start()
    thread.join()
    assert len(model.lanes()) == 2


def test_no_call_follows_the_shutdown() -> None:
    model = HashModel()
    model.open(8)
    model.shutdown()
    assert model.lanes() == ()
    with pytest.raises(MisuseError):
        model.open(8)


def test_time_and_rows_of_its_own_are_counted() -> None:
    model = HashModel()
    lane = _lane(model, [1, 2])
    before = model.host_seconds
    model.collect(_launch(model, lane, 1, chain(2, [3, 4])))
    assert model.host_seconds > before > 0.0
    assert (model.launches, model.rows) == (1, 3)


@pytest.mark.parametrize(("hits", "right"), [((1.0,) * 5, 5), ((0.0,) * 5, 0), ((1.0, 1.0, 0.0), 2)])
def test_a_head_is_right_as_deep_as_its_hits_say(hits: tuple[float, ...], right: int) -> None:
    law, prompt = HashLaw(), [7, 8, 9]
    model = HashModel(law, head=HashHead(hits))
    (offer,) = model.propose([ProposeSpec(_lane(model, prompt), 9, len(hits), Sampling())])
    reply = serial_reference(law, prompt, 6).tokens
    assert isinstance(offer, Chain) and offer.confidence == hits
    assert offer.tokens[:right] == reply[:right]
    assert right == len(hits) or offer.tokens[right] != reply[right]


def test_a_head_that_is_half_right_is_right_about_half_the_time() -> None:
    law, head, right = HashLaw(), HashHead((0.5,)), 0
    for seed in range(400):
        prompt = [seed % 64, seed // 64, 3]
        reply = serial_reference(law, prompt, 2).tokens
        offer = head.propose(law, law.state_of(prompt), reply[0], 3, 1, Sampling())
        right += offer.tokens[0] == reply[1]
    assert 150 < right < 250


def test_a_drafters_lattice_holds_the_targets_own_tokens() -> None:
    law, prompt = HashLaw(), [7, 8, 9]
    model = HashModel(law, head=HashDrafter((1.0, 0.0, 1.0), lead=9.0))
    (offer,) = model.propose([ProposeSpec(_lane(model, prompt), 9, 3, Sampling())])
    reply = serial_reference(law, prompt, 6).tokens
    assert isinstance(offer, Lattice) and [len(pair) for pair in offer.pair] == [
        1,
        len(offer.ids[0]),
        len(offer.ids[1]),
    ]
    leads = [int(ids[scores.argmax()]) for ids, scores in zip(offer.ids, offer.scores, strict=True)]
    assert all(token in ids for token, ids in zip(reply, offer.ids, strict=False))
    assert [lead == token for lead, token in zip(leads, reply, strict=False)] == [True, False, True]


def test_a_head_drafts_from_what_a_lane_has_absorbed_and_nothing_else() -> None:
    model = HashModel(head=HashHead())
    lane, empty = _lane(model, [1, 2]), _lane(model, [1])
    spec = ProposeSpec(lane, 2, 2, Sampling())
    first = model.propose([spec])
    assert model.propose([ProposeSpec(empty, 1, 2, Sampling()), spec]) == [None, *first]
    assert model.propose([replace(spec, lane=model.fork(lane))]) == first
    for wrong in (replace(spec, pending=64), replace(spec, depth=0), replace(spec, lane=99)):
        with pytest.raises(MisuseError):
            model.propose([wrong])
    with pytest.raises(MisuseError):
        model.propose([spec, spec])
    _launch(model, lane, 1, chain(2))
    with pytest.raises(MisuseError):
        model.propose([spec])


def test_a_graph_reuses_lane_numbers_and_overwrites_old_draws() -> None:
    model = GraphModel()
    first = _lane(model, [1, 2])
    draws = model.collect(ticket := _launch(model, first, 1, chain(2)))
    assert draws.tokens[0][0] >= 0
    model.keep(ticket, [(0,)])
    model.close(first)
    second = _lane(model, [1, 2])
    assert second == first
    _launch(model, second, 1, chain(2))
    assert list(draws.tokens[0]) == [POISON]


def test_every_misuse_is_remembered() -> None:
    model = HashModel()
    lane = _lane(model, [1, 2])
    assert model.misuses == []
    with pytest.raises(MisuseError):
        _launch(model, lane, 9, chain(1))
    with pytest.raises(KeyError):
        model.close(99)
    assert [line.split(":")[0] for line in model.misuses] == ["launch", "close"]
