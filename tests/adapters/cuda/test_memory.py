"""The card's figures as a memory runtime, over figures that were handed in: no torch, no card."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tensorfold.adapters.cuda.memory import CudaMemory, Figures, allocating, machine, read_meminfo
from tensorfold.domain.memory.budgets import Card, Machine
from tests.adapters.cuda.recorded import DISCRETE, GIB, UNIFIED, figures


def test_figures_of_the_allocator_are_bytes_in_use_held_and_most() -> None:
    released: list[bool] = []
    memory = CudaMemory(replace(figures(DISCRETE), release=lambda: released.append(True)))
    assert (memory.active(), memory.cached(), memory.peak()) == (20 * GIB, 2 * GIB, 23 * GIB)
    memory.release()
    assert released == [True]


def test_what_is_held_is_never_less_than_nothing() -> None:
    odd: Figures = replace(figures(DISCRETE), reserved=lambda: 0)
    assert CudaMemory(odd).cached() == 0


def test_nothing_is_bound() -> None:
    memory = CudaMemory(figures(DISCRETE))
    assert not memory.limit(GIB) and not memory.limit_cache(GIB)


def test_a_card_of_its_own_memory_and_one_that_shares_the_machines_are_told_apart() -> None:
    assert machine(figures(DISCRETE)) == Machine(
        DISCRETE.ram, card=Card(DISCRETE.total, DISCRETE.free, DISCRETE.available)
    )
    shared = machine(figures(UNIFIED)).card
    assert shared == Card(UNIFIED.total, UNIFIED.free, UNIFIED.available, unified=True)


def test_meminfo_that_lacks_a_figure_is_refused_by_its_name() -> None:
    assert read_meminfo("MemTotal: 8 kB\nMemAvailable: 4 kB\nHugePages_Total: 0\nodd\n: 3 kB") == {
        "MemTotal": 8192,
        "MemAvailable": 4096,
        "": 3072,
    }
    with pytest.raises(ValueError, match="/proc/meminfo does not state MemAvailable"):
        read_meminfo("MemTotal: 8 kB\nMemAvailable: four kB")


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


@pytest.mark.parametrize(
    "fault", [OutOfMemoryError("tried to allocate"), RuntimeError("CUDA error: out of memory")], ids=str
)
def test_memory_that_cannot_be_had_is_a_memory_error(fault: RuntimeError) -> None:
    @allocating
    def call(*given: Any) -> None:
        raise fault

    with pytest.raises(MemoryError) as raised:
        call()
    assert raised.value.__cause__ is fault


def test_another_fault_stays_what_it_is_and_a_result_passes() -> None:
    @allocating
    def call(value: int, *, fail: bool = False) -> int:
        if fail:
            raise RuntimeError("an illegal address")
        return value

    assert call(3) == 3
    with pytest.raises(RuntimeError, match="an illegal address"):
        call(3, fail=True)
