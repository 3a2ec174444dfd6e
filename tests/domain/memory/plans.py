"""Memory plans small enough to reckon by hand."""

from __future__ import annotations

from tensorfold.domain.memory.budgets import RESERVE, Budget
from tensorfold.domain.memory.plan import Footprint, MemoryPlan
from tensorfold.domain.memory.state_profile import Growing, Holding, StateProfile
from tensorfold.domain.memory.work import Work


def memory_plan(
    room: int, *, weights: int = 0, row: int = 1, fixed: int = 0, first: int = 1, step: int = 1, work: int = 0
) -> MemoryPlan:
    """`room` bytes beside the weights; a lane takes `fixed` bytes and `row` for each slot, a pass `work`."""
    # A window that nothing fills: rows then grow one by one and do not double.
    state = StateProfile(fixed, 0, (Growing(row, 1, 1 << 40),), 0, Holding("float32", first, step, 0))
    budget = Budget(RESERVE + weights + room, "70% of a test's RAM", 0)
    return MemoryPlan(budget, Footprint(weights, state, Work(work, 0, 0, 0), 64))
