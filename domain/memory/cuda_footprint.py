"""What a model takes of a card besides lanes: weights as they are packed, and its scratch (`cuda_work`).

From a bound plan alone: headers were read, no weight was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.plan_weights import drafter_weights
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.families.state import state_spec
from tensorfold.domain.families.storage import Affine
from tensorfold.domain.families.tensors import Weight
from tensorfold.domain.memory.cuda_holding import PAGE, pool_sizes, width_of
from tensorfold.domain.memory.cuda_work import host_growth, scratch_of
from tensorfold.domain.memory.plan import Footprint
from tensorfold.domain.memory.state_profile import Growing, Holding, StateProfile
from tensorfold.domain.prompts.family_chunk import CARD_CHUNKS

TILE, GROUP, DENSE = 16, 64, 16
_HEAD = "mtp."
_STAGED = 3
"""Largest layers in flight while weights are read: stored, unpacked and packed."""


def cuda_footprint(
    plan: DecoderPlan,
    bound: Mapping[str, Bound],
    *,
    head: bool,
    drafter: DFlashDrafter | None = None,
    drafter_bits: int = 4,
) -> Footprint:
    """A model with `head`, where it has one of its own, or a `drafter` of `drafter_bits` wide matrices."""
    loaded, kept = loaded_part(plan, bound, head=head)
    weights = sum(map(slot_bytes, kept.values()))
    if drafter is not None:
        weights += _drafter_bytes(drafter, drafter_bits)
    entries = state_spec(loaded, drafter)
    return Footprint(
        weights=weights,
        state=_paged(pool_sizes(entries, plan.activation).page),
        work=scratch_of(loaded, kept, drafts=loaded.mtp is not None, drafter=drafter).work,
        rows=CARD_CHUNKS[0],  # the most; the plan for a card settles how many
        pools=pool_sizes(entries, plan.activation),
        staging=_STAGED * largest_layer(kept),
        host=host_growth(loaded, kept),
    )


def loaded_part(
    plan: DecoderPlan, bound: Mapping[str, Bound], *, head: bool
) -> tuple[DecoderPlan, Mapping[str, Bound]]:
    """What is loaded of a plan and of its slots: its own draft head only where it is stored and wanted."""
    if head and plan.mtp is not None and any(path.startswith(_HEAD) for path in bound):
        return plan, bound
    return replace(plan, mtp=None), {path: found for path, found in bound.items() if not path.startswith(_HEAD)}


def slot_bytes(found: Bound) -> int:
    """Bytes of a slot on the card: matrices packed, those that ids are looked up in too; all else in float32."""
    is_matrix = len(found.slot.shape) > 1 and found.slot.weight.rule in ("matrix", "router")
    return packed(found) if is_matrix else 4 * math.prod(found.slot.shape)


def packed(found: Bound) -> int:
    """Bytes of a matrix [.., N, K] in blocks of 16 outputs and 64 inputs, outputs filled up, biases in float32.

    Codes of fewer than 4 bits are held in 4; each group of 64 has a scale and a bias of two bytes.
    """
    *stacked, outputs, inputs = found.slot.shape
    bits = max(4, found.storage.bits) if isinstance(found.storage, Affine) else DENSE
    block = TILE * GROUP * bits // 8 + (0 if bits == DENSE else TILE * 4)
    bias = 4 * outputs if found.module.bias else 0
    return math.prod(stacked) * (-(-outputs // TILE) * -(-inputs // GROUP) * block + bias)


def largest_layer(bound: Mapping[str, Bound]) -> int:
    """Bytes of the largest layer, or of the embedding or output matrix where those are larger."""
    sizes: dict[str, int] = {}
    for path, found in bound.items():
        parts = path.split(".")
        layer = ".".join(parts[: parts.index("layers") + 2]) if "layers" in parts else parts[0]
        sizes[layer] = sizes.get(layer, 0) + slot_bytes(found)
    return max(sizes.values(), default=0)


def _paged(page: int) -> StateProfile:
    """A lane as its pages: given whole when it opens, with those of a window behind its last token."""
    holding = Holding("bfloat16", PAGE, PAGE, width_of(1), whole=True)
    return StateProfile(0, 0, (Growing(page // PAGE, 1, 0),) if page else (), 0, holding)


def _drafter_bytes(drafter: DFlashDrafter, bits: int) -> int:
    """Bytes of a drafter's weights: its matrices packed at `bits`, 0 for bf16; its selector's tables in bf16.

    The matrices of its keys and values are held twice: kept rows enter all layers by one product.
    """
    return sum(
        _drafter_slot(weight, bits) * (2 if path.endswith((".k", ".v")) else 1)
        for path, weight in drafter_weights(drafter).items()
    )


def _drafter_slot(weight: Weight, bits: int) -> int:
    values = math.prod(weight.shape)
    if len(weight.shape) == 2 and weight.rule == "matrix" and bits:
        return values * max(4, bits) // 8 + values // GROUP * 4
    return values * (2 if len(weight.shape) == 2 else 4)
