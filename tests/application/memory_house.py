"""A server whose memory exists as numbers: a metered model, a fake allocator bound to the budget, admission between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tensorfold.application.admission import MemoryAdmission, Retained
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.scheduler import Scheduler
from tensorfold.domain.memory.budgets import RESERVE, Budget
from tensorfold.domain.memory.plan import Footprint, MemoryPlan
from tensorfold.domain.memory.state_profile import Growing, Holding, StateProfile
from tensorfold.domain.memory.work import Work
from tests.application.house import serving
from tests.fakes.faulty_model import Fault, FaultyModel
from tests.fakes.hash_model import HashModel
from tests.fakes.machine import FakeMemory
from tests.fakes.metered_model import MeteredModel

WEIGHTS = 1 << 20
ROW = 1024


def plan_of(rows: int, *, work_rows: int = 8) -> MemoryPlan:
    """Room for `rows` rows of lanes and `work_rows` of work; buffers begin with 8 rows and double in steps of 4."""
    state = StateProfile(0, 0, (Growing(ROW, 1, 0),), 0, Holding("float32", 8, 4, 0))
    work = Work(work_rows * ROW, 0, 0, 0)
    budget = Budget(RESERVE + WEIGHTS + (rows + work_rows) * ROW, "a test's", 0)
    return MemoryPlan(budget, Footprint(WEIGHTS, state, work, 16))


def within(inner: TargetModel, rows: int, *, ahead: int = 16) -> tuple[MeteredModel, MemoryAdmission]:
    """A model in an allocator with room for `rows` rows, and who admits to it."""
    plan, memory = plan_of(rows), FakeMemory()
    admission = MemoryAdmission(plan, memory, ahead=ahead)
    admission.begin()
    return MeteredModel(inner, plan, memory), admission


@dataclass
class Metered:
    """A running server and its parts."""

    scheduler: Scheduler
    memory: FakeMemory
    model: HashModel
    admission: MemoryAdmission
    faults: list[Fault]
    lines: list[str] = field(default_factory=list)


@contextmanager
def metered(
    inner: HashModel,
    rows: int,
    *,
    ahead: int = 16,
    binds: bool = True,
    retained: Retained | None = None,
    faults: Sequence[Fault] = (),
    **options: Any,
) -> Iterator[Metered]:
    """A server with room for `rows` rows. With `binds` the allocator tells and holds its limit, else it tells nothing.

    After it nothing is left in the allocator but the weights.
    """
    plan, memory = plan_of(rows), FakeMemory(binds=binds)
    admission = MemoryAdmission(plan, memory, retained, ahead=ahead)
    admission.begin()
    memory.bound = plan.budget.allocator
    # Faults inside: what the allocator holds of a call that failed is as true as a device's.
    faulty = FaultyModel(MeteredModel(inner, plan, memory), faults)
    lines: list[str] = []
    with serving(faulty, admission=admission, log=lines.append, **options) as scheduler:
        yield Metered(scheduler, memory, inner, admission, faulty.faults, lines)
    assert memory._active == WEIGHTS
    assert memory._peak <= plan.budget.allocator
