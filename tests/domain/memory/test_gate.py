"""Admission and the gate: who waits, who pauses, who gives a lane up, and that no schedule is ever over its room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tensorfold.domain.memory.gate import AHEAD, Stake, admission, gate, held_bytes, needed
from tests.benchmarks.memory_schedules import Tally, play
from tests.domain.memory.plans import memory_plan


def stake(index: int, tokens: int, capacity: int, *, prompt: int = 1, whole: bool = False, lane: bool = True) -> Stake:
    return Stake(index, tokens, prompt, capacity, whole, lane)


def test_a_named_reply_limit_counts_whole_and_another_with_its_next_tokens() -> None:
    assert stake(0, 10, 9000, whole=True).reserved() == 9000
    assert stake(0, 10, 9000).reserved() == 10 + AHEAD
    assert stake(0, 0, 9000, prompt=500).reserved() == 500 + AHEAD
    assert stake(0, 8999, 9000).reserved() == 9000


def test_a_lane_that_is_read_again_is_held_as_far_as_it_was_read_and_counts_with_all_its_tokens() -> None:
    memory = memory_plan(10_000)
    whole, again = stake(0, 300, 9000), replace(stake(0, 300, 9000), behind=200)
    assert held_bytes(memory, [again]) == (memory.lane(100, 9000),) * 2 < held_bytes(memory, [whole])
    assert needed(memory, [again]) == needed(memory, [whole])


def test_rows_that_were_not_kept_may_have_made_a_lanes_buffers_grow() -> None:
    memory = memory_plan(10_000)
    grown = replace(stake(0, 300, 9000), spare=20)
    assert held_bytes(memory, [grown]) == (memory.lane(300, 9000), memory.lane(320, 9000))
    assert needed(memory, [], [grown]) - needed(memory, [], [stake(0, 300, 9000)]) == 20


def test_what_fits_beside_the_others_is_admitted_with_all_it_asked_for() -> None:
    memory = memory_plan(10_000)
    given = admission(memory, memory.room, stake(1, 0, 4000, whole=True), [stake(0, 5, 6000, whole=True)])
    assert (given.reply, given.short) == (3999, 0)


def test_what_does_not_fit_beside_the_others_is_told_how_much_lacks() -> None:
    memory = memory_plan(10_000)
    given = admission(memory, memory.room, stake(1, 0, 4001, whole=True), [stake(0, 5, 6000, whole=True)])
    assert given.short == 1


def test_what_does_not_fit_alone_is_told_the_largest_that_does() -> None:
    memory = memory_plan(10_000)
    given = admission(memory, memory.room, stake(0, 0, 12_000, whole=True), [])
    assert (given.short, given.largest) == (2000, 10_000)


def test_a_request_without_a_limit_gets_what_memory_leaves_it_when_it_is_alone() -> None:
    memory = memory_plan(1000)
    alone = stake(0, 0, 4000, prompt=900)
    assert admission(memory, memory.room, alone, []).reply == 100
    assert admission(memory, memory.room, alone, [stake(1, 1, 2)]).short > 0


def test_all_run_while_what_they_count_with_fits() -> None:
    memory = memory_plan(2 * (100 + AHEAD))
    assert gate(memory, memory.room, [stake(0, 100, 9000), stake(1, 100, 9000)]).run == {0, 1}


def test_the_newest_pauses_first_and_keeps_its_lane_where_it_fits() -> None:
    memory = memory_plan(2 * (100 + AHEAD) - 1)
    decided = gate(memory, memory.room, [stake(1, 100, 9000), stake(0, 100, 9000)])
    assert decided.run == {0} and not decided.drop and not decided.end


def test_lanes_are_given_up_newest_first_where_the_oldest_alone_does_not_fit_beside_them() -> None:
    memory = memory_plan(9000)
    decided = gate(memory, memory.room, [stake(0, 5000, 9000), stake(1, 1500, 9000), stake(2, 1500, 9000)])
    assert decided.run == {0} and decided.drop == (2,)


def test_the_oldest_ends_only_when_its_next_step_does_not_fit_with_all_lanes_given_up() -> None:
    memory = memory_plan(5000)
    near, over = stake(0, 4900, 9000), stake(0, 5000, 9000)
    assert gate(memory, memory.room, [near, stake(1, 10, 20)]).run == {0}
    decided = gate(memory, memory.room, [over, stake(1, 10, 20)])
    assert decided.end == (0,) and decided.drop == (1,) and not decided.run


def test_a_lane_comes_back_when_twice_what_its_stream_counts_with_fits() -> None:
    waiting = stake(1, 100, 90_000, lane=False)
    running = stake(0, 100, 9000)
    enough = needed(memory_plan(0), [running]) + 100 + 2 * AHEAD
    assert gate(memory_plan(enough), enough, [running, waiting]).resume == (1,)
    assert gate(memory_plan(enough), enough - 1, [running, waiting]) == gate(memory_plan(enough), enough, [running])


def test_the_oldest_without_a_lane_gets_one_when_nothing_else_holds_any() -> None:
    memory = memory_plan(200)
    streams = [stake(2, 100, 9000, lane=False), stake(1, 100, 9000, lane=False)]
    assert gate(memory, memory.room, streams).resume == (1,)
    assert gate(memory_plan(100), 100, streams).end == (1,)


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_no_random_schedule_is_ever_over_its_room_and_each_comes_to_its_end(first: int) -> None:
    tally = Tally()
    for seed in range(first, first + 100):
        play(seed, tally)
    assert (tally.over, tally.stuck, tally.ended) == (0, 0, 0), tally.notes
    assert min(tally.admitted, tally.waited) > 100 and tally.paused > 0 and tally.worst > 0.9
