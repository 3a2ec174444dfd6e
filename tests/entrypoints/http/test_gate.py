"""Places for replies, and how the end of the server reaches them."""

from __future__ import annotations

import pytest

from tensorfold.entrypoints.http.errors import ApiError
from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.limits import HttpLimits


class Hand:
    """A clock moved by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_full_gate_refuses_with_a_time_to_come_back_and_a_place_given_back_is_free_again() -> None:
    gate = Gate(2)
    gate.enter()
    gate.enter()
    with pytest.raises(ApiError) as full:
        gate.enter()
    assert full.value.status == 503
    assert int(full.value.headers["Retry-After"]) > 0
    assert "2 requests" in full.value.message
    gate.leave()
    gate.enter()
    assert gate.inside == 2


def test_clients_that_leave_are_counted() -> None:
    gate = Gate(3)
    for disconnected in (True, False, True):
        gate.enter()
        gate.leave(disconnected=disconnected)
    assert (gate.disconnections, gate.inside) == (2, 0)


def test_after_a_drain_nothing_enters_and_after_its_grace_everything_must_end() -> None:
    clock = Hand()
    gate = Gate(3, clock)
    gate.enter()
    gate.drain(5.0)
    with pytest.raises(ApiError) as ending:
        gate.enter()
    assert (ending.value.status, ending.value.code) == (503, "overloaded")
    assert (gate.draining, gate.over) == (True, False)
    clock.now += 5.0
    assert gate.over


def test_a_later_drain_only_shortens_the_grace() -> None:
    clock = Hand()
    gate = Gate(3, clock)
    gate.drain(5.0)
    gate.drain(60.0)
    clock.now += 5.0
    assert gate.over
    fresh = Gate(3, clock)
    fresh.drain(60.0)
    fresh.drain(0.0)
    assert fresh.over


def test_waiting_for_an_empty_gate_ends_when_it_is_empty_or_the_time_is_over() -> None:
    gate = Gate(3)
    assert gate.wait_empty(0.0)
    gate.enter()
    assert not gate.wait_empty(0.0)
    gate.leave()
    assert gate.wait_empty(0.0)


def test_threads_cover_streams_queue_and_headroom_and_some_are_never_given_to_replies() -> None:
    assert HttpLimits.for_load(8, 72).threads == 96
    assert HttpLimits.for_load(1, 2).threads == 32
    large = HttpLimits.for_load(64, 256)
    assert large.threads == 336
    assert large.replies == 328
    assert large.connections >= large.threads
    assert large.descriptors >= large.connections
