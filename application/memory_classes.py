"""The memory classes of the README: what window each model gets in a nominal machine's budget, reckoned from plans.

No machine is looked at and no weight read: published sizes at the widths of the listed checkpoints, on a Mac's GPU
whose load check lets prompts be cut into slices. What is measured is another table, which stays open until it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorfold.domain.families import dflash2
from tensorfold.domain.families.catalogue import NEMOTRON, QWEN_27B, QWEN_FLASH_NEXT, Family, published_plan
from tensorfold.domain.families.device_limits import DEFAULT_SHARE
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.families.published import DFLASH2
from tensorfold.domain.families.storage import Layout, Quantization
from tensorfold.domain.memory.budgets import GIB, Budget, Machine, budget
from tensorfold.domain.memory.held_weights import drafted_rows_bytes, drafter_bytes, stated_bytes
from tensorfold.domain.memory.mlx_holding import footprint
from tensorfold.domain.memory.plan import Footprint, MemoryPlan
from tensorfold.domain.memory.windows import ContextWindow, MemoryRefusal, choose

CLASSES = (36, 48, 64, 96, 128, 192, 256)
"""Nominal RAM, taken as GiB."""
DRAFTER_BITS = 4
BITS, GROUPS = 4, (64, 32)


@dataclass(frozen=True, slots=True)
class Column:
    """A model as it is served: its plan, with its head where its checkpoint holds one, and a drafter beside it."""

    title: str
    plan: DecoderPlan
    layout: Layout
    drafter: DFlashDrafter | None = None

    @property
    def footprint(self) -> Footprint:
        """What it takes on a GPU."""
        quantization, head = Quantization(self.layout), self.plan.mtp
        weights = stated_bytes(self.plan, quantization)
        spans = head.draft_ids if head is not None else () if self.drafter is None else self.drafter.draft_ids
        weights += drafted_rows_bytes(self.plan, spans, quantization)
        weights += 0 if self.drafter is None else drafter_bytes(self.drafter, DRAFTER_BITS)
        return footprint(self.plan, weights, cpu=False, head=head is not None, drafter=self.drafter)


@dataclass(frozen=True, slots=True)
class Cell:
    """What a class gives a model: its window, or the sentence that refuses it."""

    window: ContextWindow | None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Class:
    """One class of machines: nominal GB, the budget before the reserve, a cell for each column."""

    nominal: int
    budget: Budget
    cells: tuple[Cell, ...]


def columns() -> tuple[Column, ...]:
    """The four models of the table."""
    qwen = _plan(QWEN_27B)
    return (
        Column(f"{QWEN_27B.title} + DFlash2", qwen, _layout(QWEN_27B), dflash2.plan(DFLASH2, qwen)),
        Column(f"{QWEN_27B.title}, --drafter none", qwen, _layout(QWEN_27B)),
        Column(NEMOTRON.title, _plan(NEMOTRON), _layout(NEMOTRON)),
        Column(QWEN_FLASH_NEXT.title, _plan(QWEN_FLASH_NEXT), _layout(QWEN_FLASH_NEXT)),
    )


def classes(models: Sequence[Column]) -> tuple[Class, ...]:
    """Every class with the windows of these models."""
    held = [(model, model.footprint) for model in models]
    made = []
    for nominal in CLASSES:
        ceiling = budget(Machine(nominal * GIB), DEFAULT_SHARE)
        made.append(
            Class(nominal, ceiling, tuple(_cell(model.plan, MemoryPlan(ceiling, took)) for model, took in held))
        )
    return tuple(made)


def _cell(plan: DecoderPlan, memory: MemoryPlan) -> Cell:
    try:
        return Cell(choose(plan, memory, None))
    except MemoryRefusal as refusal:
        return Cell(None, refusal.message)


def _plan(family: Family) -> DecoderPlan:
    plan = published_plan(family)
    assert plan is not None
    return plan if family.has_head else replace(plan, mtp=None)


def _layout(family: Family) -> Layout:
    """The listed checkpoint's: 4 bits, in the widest groups that its family's kernels read."""
    formats = family.reader.formats
    assert formats is not None
    _, groups = formats.layouts["mlx"]
    return Layout(BITS, next(group for group in GROUPS if group in groups))
