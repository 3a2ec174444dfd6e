"""Whose prompt is read next: short ones first, the foreground first, and nobody forgotten."""

from __future__ import annotations

import pytest

from tensorfold.domain.scheduling.fills import PATIENCE, Filling, FillOrder


def test_the_prompt_with_the_fewest_ids_left_goes_first_and_the_older_of_equals() -> None:
    order = FillOrder()
    assert order.take([Filling(1, 900), Filling(2, 30), Filling(3, 30)]) == 2
    assert order.take([Filling(1, 900)]) == 1


def test_the_foreground_goes_before_the_background() -> None:
    order = FillOrder()
    assert order.take([Filling(1, 5, background=True), Filling(2, 900)]) == 2


def test_a_prompt_that_was_passed_over_often_enough_takes_one_turn() -> None:
    order = FillOrder()
    long, taken = Filling(1, 100_000), []
    for n in range(2 * PATIENCE + 2):
        taken.append(order.take([long, Filling(100 + n, 10)]) == 1)
    assert [at for at, turn in enumerate(taken) if turn] == [PATIENCE, 2 * PATIENCE + 1]


def test_background_prompts_are_not_starved_by_foreground_ones() -> None:
    order = FillOrder(3)
    turns = [order.take([Filling(1, 10, background=True), Filling(2, 10)]) for _ in range(8)]
    assert turns == [2, 2, 2, 1, 2, 2, 2, 1]


def test_of_many_that_waited_too_long_the_foreground_goes_first() -> None:
    order = FillOrder(1)
    prompts = [Filling(1, 9, background=True), Filling(2, 8), Filling(3, 1)]
    assert [order.take(prompts) for _ in range(4)] == [3, 2, 1, 3]


def test_who_left_is_forgotten() -> None:
    order = FillOrder(2)
    for _ in range(2):
        order.take([Filling(1, 100), Filling(2, 1)])
    assert order.take([Filling(2, 1)]) == 2
    assert order.take([Filling(1, 100), Filling(2, 1)]) == 2


def test_whole_prompts_go_in_order_of_arrival_the_foreground_first() -> None:
    order = FillOrder(1, whole=True)
    prompts = [Filling(1, 9, background=True), Filling(2, 8), Filling(3, 1)]
    assert [order.take(prompts) for _ in range(4)] == [2, 2, 2, 2]


def test_a_patience_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="0 times"):
        FillOrder(0)
