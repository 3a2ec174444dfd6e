"""Admission and the gate where what is needed is the room there is, to the byte."""

from __future__ import annotations

from dataclasses import replace

from tensorfold.domain.memory.gate import AHEAD, Admission, Stake, admission, gate, needed
from tensorfold.domain.memory.work import Work
from tests.domain.memory.plans import memory_plan
from tests.domain.memory.test_gate import stake


def test_what_fits_exactly_is_admitted_with_all_it_may_come_to() -> None:
    memory = memory_plan(100 + AHEAD)
    assert admission(memory, memory.room, stake(0, 0, 9000, prompt=100), []) == Admission(8900, 0, 9000)
    short = admission(memory, memory.room - 1, stake(0, 0, 9000, prompt=100), [])
    assert short == Admission(AHEAD - 1, 0, 100 + AHEAD - 1)


def test_beside_others_it_is_not_told_what_would_fit_alone_and_a_prompt_without_a_token_of_reply_is_refused() -> None:
    memory = memory_plan(900)
    assert admission(memory, memory.room, stake(1, 0, 4000, prompt=500), [stake(0, 500, 600)]).largest == 0
    refused = admission(memory, memory.room, stake(0, 0, 4000, prompt=900), [])
    assert (refused.short, refused.largest) == (900 + AHEAD - 900, 900)
    nothing = memory_plan(0)
    assert admission(nothing, 0, stake(0, 0, 5, whole=True), []).largest == 0


def test_a_stake_has_its_lane_unless_it_is_said() -> None:
    assert Stake(0, 1, 1, 2, True).lane


def test_as_many_run_as_fit_beside_the_lanes_of_the_others() -> None:
    memory = memory_plan(2 * (100 + AHEAD) + 100)
    three = [stake(n, 100, 9000) for n in range(3)]
    assert gate(memory, memory.room, three).run == {0, 1}
    assert gate(memory, memory.room - 1, three).run == {0}


def test_while_a_stream_pauses_nobody_gets_a_lane_again() -> None:
    memory = memory_plan(2 * (100 + AHEAD) - 1)
    decided = gate(memory, memory.room, [stake(0, 100, 9000), stake(1, 100, 9000), stake(2, 100, 9000, lane=False)])
    assert decided.run == {0} and not decided.resume


def test_nothing_needs_nothing_and_who_waits_needs_its_lane_and_the_least_pass() -> None:
    memory = memory_plan(10_000)
    scored = replace(memory, footprint=replace(memory.footprint, work=Work(0, 7, 0, 1)))
    assert needed(scored, []) == 0
    assert needed(scored, [], [stake(0, 300, 9000)]) == scored.lane(300, 9000) + scored.work(1)


def test_no_more_lanes_are_given_up_than_make_the_oldest_fit() -> None:
    memory = memory_plan(5000 + AHEAD + 1000)
    decided = gate(memory, memory.room, [stake(0, 5000, 9000), stake(1, 1000, 9000), stake(2, 500, 9000)])
    assert decided.run == {0} and decided.drop == (2,)


def test_the_last_stream_goes_on_while_its_next_pass_fits_with_its_work() -> None:
    memory = memory_plan(5000, work=100)
    rows = memory.footprint.rows
    assert gate(memory, memory.room, [stake(0, 4900 - rows, 9000)]).run == {0}
    assert gate(memory, memory.room, [stake(0, 4901 - rows, 9000)]).end == (0,)
    assert gate(memory, memory.room, [stake(0, 4900 - rows, 9000, lane=False)]).resume == (0,)
    assert gate(memory, memory.room, [stake(0, 4901 - rows, 9000, lane=False)]).end == (0,)
