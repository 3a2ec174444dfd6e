"""Published models as a card would hold them: bound plans in 4 bits, with no file behind them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from tensorfold.domain.families import dflash2, nemotron_h, qwen3_5
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.published import DFLASH2
from tensorfold.domain.families.storage import Affine, Dense
from tensorfold.domain.families.stored_modules import Module
from tensorfold.domain.memory.budgets import GIB, Card
from tensorfold.domain.memory.cuda_budget import card_budget
from tensorfold.domain.memory.cuda_footprint import cuda_footprint
from tensorfold.domain.memory.plan import Footprint, MemoryPlan

H200 = Card(150_109_880_320, 149_557_477_376, 131_469_112 << 10)
"""As it was read on one with nothing else on it."""
SHARED = Card(120 * GIB, 20 * GIB, 112 * GIB, unified=True)
"""A machine of 120 GiB that its GPU shares."""


def bound_of(plan: DecoderPlan) -> Mapping[str, Bound]:
    """Every slot, matrices in 4 bits in groups of 64, all else plain."""
    return {
        path: Bound(
            slot,
            slot.sources[0],
            (Module("w"),),
            Affine(4, 64, "BF16") if slot.weight.rule == "matrix" and len(slot.shape) > 1 else Dense("BF16"),
        )
        for path, slot in plan.tensors.slots.items()
    }


@lru_cache(maxsize=4)
def qwen() -> tuple[DecoderPlan, Footprint]:
    """Qwen3.8-27B with its drafter."""
    plan = qwen3_5.plan(qwen3_5.CONFIG)
    return plan, cuda_footprint(plan, bound_of(plan), head=False, drafter=dflash2.plan(DFLASH2, plan))


@lru_cache(maxsize=4)
def nemotron() -> tuple[DecoderPlan, Footprint]:
    """Nemotron with its own head."""
    plan = nemotron_h.plan(nemotron_h.CONFIG)
    return plan, cuda_footprint(plan, bound_of(plan), head=True)


def on_card(footprint: Footprint, card: Card = H200) -> MemoryPlan:
    """The plan on a card of which nothing was asked."""
    return MemoryPlan(card_budget(card, reserve=None, limits={}), footprint)


def card_of(gib: float) -> Card:
    """A card with so many GiB free of twice as many."""
    return Card(int(2 * gib * GIB), int(gib * GIB), 64 * GIB)
