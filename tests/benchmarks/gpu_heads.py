"""Which draft head a model on the card is loaded with: the drafter published for it, else its own, else none."""

from __future__ import annotations

from typing import Any

from tensorfold.adapters.cuda.heads.makers import MakeHead, block_head, mtp_head
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter


def head_of(plan: DecoderPlan, weights: Any, drafter: DFlashDrafter | None, drafter_weights: Any) -> MakeHead | None:
    """What the loader makes a head with; None where nothing but copies can draft."""
    if drafter is not None:
        return block_head(drafter, drafter_weights, drafter.family, 4)
    return mtp_head(plan.mtp) if plan.mtp is not None and weights.has_below("mtp.") else None
