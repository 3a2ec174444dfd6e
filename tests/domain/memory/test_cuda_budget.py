"""What of a card may be taken: a floor is left to others, variables lower it, and shared memory counts once."""

from __future__ import annotations

import pytest

from tensorfold.domain.memory.budgets import GIB, Budget, Card
from tensorfold.domain.memory.cuda_budget import CARD_LIMIT, RESERVE_NAME, card_budget, check_host
from tensorfold.domain.memory.windows import LIMIT, MemoryRefusal


def made(card: Card, reserve: int | None = None, limits: dict[str, int] | None = None) -> Budget:
    return card_budget(card, reserve=reserve, limits=limits or {})


def test_a_tenth_of_a_large_card_and_four_gib_of_a_small_one_are_left_to_others() -> None:
    large, small = made(Card(80 * GIB, 78 * GIB, 0)), made(Card(24 * GIB, 20 * GIB, 0))
    assert (large.allocator, large.reserve) == (70 * GIB, 8 * GIB)
    assert (small.allocator, small.reserve, small.bound) == (16 * GIB, 4 * GIB, "what is free of the card")


def test_of_shared_memory_what_the_system_calls_available_counts() -> None:
    shared = made(Card(120 * GIB, 3 * GIB, 100 * GIB, unified=True))
    assert shared.allocator == 88 * GIB
    assert shared.bound == "what is available of the memory that processor and card share"


def test_less_than_the_floor_leaves_nothing() -> None:
    assert made(Card(24 * GIB, 2 * GIB, 0)).allocator == 0


def test_a_reserve_that_was_asked_for_replaces_the_floor() -> None:
    budget = made(Card(80 * GIB, 78 * GIB, 0), reserve=2 * GIB)
    assert (budget.allocator, budget.kept_for) == (76 * GIB, f"as {RESERVE_NAME} asks")


@pytest.mark.parametrize("reserve", [78, 100])
def test_a_reserve_of_all_there_is_or_more_is_refused_by_its_name(reserve: int) -> None:
    with pytest.raises(MemoryRefusal) as refused:
        made(Card(80 * GIB, 78 * GIB, 0), reserve=reserve * GIB)
    assert refused.value.message == (
        f"TENSORFOLD_MEMORY_RESERVE_GIB asks to leave {reserve}.00 GiB and 78.00 GiB are free of the card: give a "
        "smaller number of GiB."
    )


def test_the_smaller_of_two_limits_is_what_may_be_taken() -> None:
    card = Card(80 * GIB, 78 * GIB, 0)
    assert made(card, limits={CARD_LIMIT: 20 * GIB}).allocator == 20 * GIB
    both = made(card, limits={CARD_LIMIT: 20 * GIB, LIMIT: 10 * GIB})
    assert (both.allocator, both.bound, both.reserve) == (10 * GIB, LIMIT, 0)


def test_a_limit_that_is_not_lower_changes_nothing_and_a_line_says_so() -> None:
    budget = made(Card(80 * GIB, 78 * GIB, 0), limits={CARD_LIMIT: 75 * GIB})
    assert budget.allocator == 70 * GIB
    assert budget.note == (
        "TENSORFOLD_CUDA_MEMORY_LIMIT_GB is 75.00 GiB, which is not below the 70.00 GiB there are: it changes nothing"
    )


def test_weights_that_cannot_pass_through_the_machines_memory_are_refused_with_the_figures() -> None:
    check_host(Card(80 * GIB, 78 * GIB, 5 * GIB), 3 * GIB)
    check_host(Card(8 * GIB, 8 * GIB, GIB, unified=True), 3 * GIB)
    with pytest.raises(MemoryRefusal) as refused:
        check_host(Card(80 * GIB, 78 * GIB, 4 * GIB), 3 * GIB)
    assert refused.value.message == (
        "Reading the weights takes 3.00 GiB of the machine's memory at a time and 2.00 GiB are available for it, 2.00 "
        "GiB left to others: end what else runs there. Nothing was loaded."
    )
