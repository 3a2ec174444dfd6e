"""A budget is the least of a share of RAM, the GPU's working set and a limit; a limit only lowers it."""

from __future__ import annotations

import pytest

from tensorfold.domain.families import glm5_next
from tensorfold.domain.families.device_limits import memory_share
from tensorfold.domain.memory.budgets import FREED, GIB, RESERVE, Machine, budget, gib


def test_a_budget_is_seventy_percent_of_ram() -> None:
    made = budget(Machine(100 * GIB), 0.7)
    assert made.process == 70 * GIB and made.allocator == 67 * GIB
    assert made.bound == "70% of 100.00 GiB" and made.cache == FREED and not made.note


def test_a_smaller_working_set_bounds_it_and_a_larger_one_does_not() -> None:
    assert budget(Machine(100 * GIB, 60 * GIB), 0.7).process == 60 * GIB
    assert "working set" in budget(Machine(100 * GIB, 60 * GIB), 0.7).bound
    assert budget(Machine(100 * GIB, 75 * GIB), 0.7).process == 70 * GIB


def test_a_familys_larger_share_holds_up_to_the_machines_its_plan_names() -> None:
    assert memory_share(glm5_next.MEMORY, 256 * GIB) == 0.85
    assert memory_share(glm5_next.MEMORY, 257 * GIB) == 0.7
    assert budget(Machine(256 * GIB), 0.85).process == int(0.85 * 256 * GIB)


def test_a_limit_lowers_the_budget() -> None:
    made = budget(Machine(100 * GIB, 60 * GIB), 0.7, limit=5 * GIB, limit_name="LIMIT")
    assert (made.process, made.bound, made.note) == (5 * GIB, "LIMIT", "")


@pytest.mark.parametrize("limit", [70 * GIB, 99 * GIB])
def test_a_limit_that_is_not_lower_changes_nothing_and_says_so(limit: int) -> None:
    made = budget(Machine(100 * GIB), 0.7, limit=limit, limit_name="LIMIT")
    assert made.process == 70 * GIB
    assert made.note == f"LIMIT is {gib(limit)}, which is not below the budget's 70.00 GiB: it changes nothing"


def test_freed_buffers_are_capped_by_what_the_allocator_may_have() -> None:
    assert budget(Machine(100 * GIB), 0.7, cache=1 * GIB).cache == 1 * GIB
    assert budget(Machine(10 * GIB), 0.7).cache == 4 * GIB
    assert budget(Machine(2 * GIB), 0.7).cache == 0 == budget(Machine(2 * GIB), 0.7).allocator


def test_the_reserve_is_three_gib() -> None:
    assert RESERVE == 3 * 2**30


def test_bytes_are_told_in_gib_and_small_ones_in_mib() -> None:
    assert gib(3 * GIB // 2) == "1.50 GiB" and gib(5 << 20) == "5.0 MiB"
