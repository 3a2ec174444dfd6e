"""Means in their order: freed buffers, then retained prefixes where they are enough, then waiting and pausing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorfold.application.admission import Admitted, MemoryAdmission, Refused, Unlimited, Wait
from tensorfold.domain.memory.gate import Gate, Stake
from tests.domain.memory.plans import memory_plan
from tests.fakes.machine import FakeMemory

WEIGHTS = 1000


class Prefixes:
    """Retained states of given sizes, the newest last; `given_up` are those that went."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)
        self.given_up: list[int] = []

    def held(self) -> int:
        return sum(self.sizes)

    def uncounted(self) -> int:
        return 0

    def reclaimable(self, keep: object = None) -> int:
        return sum(size for size in self.sizes if size != keep)

    def evict(self, keep: object = None) -> int:
        for size in self.sizes:
            if size != keep:
                self.sizes.remove(size)
                self.given_up.append(size)
                return size
        return 0


def stake(index: int, capacity: int, *, tokens: int = 0, whole: bool = True, lane: bool = True) -> Stake:
    return Stake(index, tokens, 1, capacity, whole, lane)


def admission(room: int, *sizes: int, binds: bool = False) -> tuple[MemoryAdmission, Prefixes, FakeMemory]:
    prefixes, memory = Prefixes(*sizes), FakeMemory(binds=binds)
    memory.allocate(WEIGHTS + sum(sizes))
    return MemoryAdmission(memory_plan(room, weights=WEIGHTS), memory, prefixes), prefixes, memory


def test_what_fits_is_admitted_and_gives_up_nothing() -> None:
    control, prefixes, memory = admission(100, 40)
    assert control.admit(stake(9, 60), [], "prompt") == Admitted(59)
    assert not prefixes.given_up and not memory.releases


def test_retained_prefixes_go_one_by_one_until_a_request_fits_and_never_the_one_it_resumes() -> None:
    control, prefixes, _ = admission(100, 10, 20, 30)
    assert control.admit(stake(9, 45), [], "prompt") == Admitted(44)
    assert prefixes.given_up == [10]
    assert control.admit(stake(9, 55), [], "prompt", keep=20) == Admitted(54)
    assert prefixes.given_up == [10, 30]


def test_nothing_is_given_up_where_all_of_it_would_not_do() -> None:
    control, prefixes, _ = admission(100, 10, 20)
    assert control.admit(stake(9, 60), [stake(0, 60, tokens=1)], "prompt") == Wait()
    assert isinstance(control.admit(stake(9, 101), [], "prompt"), Refused)
    assert not prefixes.given_up


def test_who_waits_for_a_lane_again_goes_before_who_never_had_one() -> None:
    control, _, _ = admission(1000)
    assert control.admit(stake(9, 5), [stake(0, 5, tokens=2, lane=False)], "prompt") == Wait()


def test_what_the_allocator_tells_counts_and_not_what_was_reckoned() -> None:
    control, _, memory = admission(100, binds=True)
    assert control.admit(stake(9, 100), [], "prompt") == Admitted(99)
    memory.allocate(30)
    assert isinstance(control.admit(stake(9, 100), [], "prompt"), Refused)
    assert control.admit(stake(9, 70), [], "prompt") == Admitted(69)


def test_freed_buffers_are_handed_back_first_and_only_where_room_is_needed() -> None:
    control, prefixes, memory = admission(100, 10, binds=True)
    memory.allocate(50)
    memory.free(50)
    assert control.admit(stake(9, 40), [], "prompt") == Admitted(39)
    assert memory.cached() == 50
    assert control.admit(stake(9, 60), [], "prompt") == Admitted(59)
    assert memory.releases == 1 and memory.cached() == 0 and not prefixes.given_up


def test_a_round_gives_up_prefixes_before_a_stream_pauses() -> None:
    control, prefixes, _ = admission(100, 30)
    streams = [stake(0, 50, tokens=20), stake(1, 50, tokens=20)]
    assert control.before_round(streams) == Gate(frozenset({0, 1}))
    assert prefixes.given_up == [30]


def test_a_round_keeps_prefixes_where_giving_them_up_would_still_pause_a_stream() -> None:
    control, prefixes, _ = admission(100, 20)
    streams = [stake(0, 60, tokens=20), stake(1, 60, tokens=10)]
    assert control.before_round(streams).run == {0}
    assert not prefixes.given_up


def test_prefixes_all_go_before_a_lane_does_or_a_stream_ends() -> None:
    control, prefixes, _ = admission(100, 15, 15)
    assert control.before_round([stake(0, 90, tokens=20), stake(1, 90, tokens=10)]) == Gate(frozenset({0}))
    assert prefixes.given_up == [15, 15]


def test_the_allocator_is_bound_to_the_budget_less_the_reserve_as_far_as_it_binds() -> None:
    control, _, memory = admission(100, binds=True)
    control.begin()
    assert control.binds and memory.bound == 100 + WEIGHTS and memory.kept == 0
    loose, _, _ = admission(100)
    loose.begin()
    assert not loose.binds


def test_streams_that_fit_to_their_ends_are_not_weighed_again_until_others_come_or_memory_shrinks() -> None:
    control, prefixes, memory = admission(300, binds=True)
    streams = [stake(0, 50, tokens=5, whole=False), stake(1, 50, tokens=5, whole=False)]
    assert control.before_round(streams) == control.before_round(streams) == Gate(frozenset({0, 1}))
    memory.allocate(230)
    assert control.before_round(streams).run == {0}
    memory.free(230)
    memory.release()
    assert control.before_round(streams).run == {0, 1}
    more = [*streams, stake(2, 250, tokens=1)]
    assert control.before_round(more).run == {0, 1} and not prefixes.given_up


@pytest.mark.parametrize("grown", [0, 30])
def test_a_lane_whose_buffers_grew_for_rows_that_were_not_kept_ends_no_stream(grown: int) -> None:
    """Whether they grew or will: the lane's bytes count once."""
    control, _, memory = admission(100, binds=True)
    memory.allocate(40)
    alone = stake(0, 90, tokens=40, whole=False)
    assert control.before_round([alone]).run == {0}
    memory.allocate(grown)
    assert control.before_round([replace(alone, spare=30)]).run == {0}
    memory.allocate(30 - grown + 11)
    assert control.before_round([replace(alone, tokens=70)]).end == (0,)


def test_what_a_lane_may_hold_counts_against_others_where_nothing_was_known_before() -> None:
    control, _, memory = admission(100, binds=True)
    memory.allocate(60)
    grown = replace(stake(0, 60, tokens=40), spare=20)
    assert control.admit(stake(1, 21), [grown], "prompt") == Wait()
    assert control.admit(stake(1, 20), [grown], "prompt") == Admitted(19)


def test_where_nothing_is_known_of_memory_all_are_admitted_and_all_run() -> None:
    control = Unlimited()
    assert control.admit(stake(9, 1 << 40), [stake(0, 1 << 40)], "prompt") == Admitted((1 << 40) - 1)
    assert control.before_round([stake(0, 9), stake(1, 9)]).run == {0, 1}
