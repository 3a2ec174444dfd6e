"""The bytes that weights take once they are loaded, from headers or from what a config states. No file is read.

Tables of n-grams stay in their files and are not among them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.listing import estimated_bytes
from tensorfold.domain.families.plan_weights import drafter_weights
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.families.state import ITEM_BYTES
from tensorfold.domain.families.storage import Affine, Quantization, TensorHeader
from tensorfold.domain.families.tensors import Slot
from tensorfold.domain.families.weights import parameters

_HEAD = "mtp."
_DRAFTER_GROUP, _SCALE_BYTES = 64, 8
"""A drafter's matrices are narrowed in groups of 64, each with a scale and a bias in float32."""


def bound_bytes(bound: Mapping[str, Bound], tensors: Mapping[str, TensorHeader], dtype: str, *, unpacked: bool) -> int:
    """Bytes of a checkpoint's weights: `unpacked` all in float32, else codes as stored, values in the rows' dtype."""
    return sum(
        _unpacked(found) if unpacked else _as_stored(found, tensors, ITEM_BYTES[dtype])
        for path, found in bound.items()
        if not _stays(path)
    )


def _unpacked(found: Bound) -> int:
    bias = math.prod(found.slot.shape[:-1]) if found.module.bias else 0
    return 4 * (math.prod(found.slot.shape) + bias)


def _as_stored(found: Bound, tensors: Mapping[str, TensorHeader], item: int) -> int:
    if isinstance(found.storage, Affine):
        return sum(tensors[name].nbytes for module in found.modules for name in module.tensors())
    return item * math.prod(found.slot.shape)


def stated_bytes(plan: DecoderPlan, quantization: Quantization | None) -> int:
    """Bytes of a model's weights as its config states them; of `mtp.` slots only where the plan has that head."""
    gone = _HEAD if plan.mtp is None else "\0"
    kept = {path: slot for path, slot in plan.tensors.slots.items() if not _stays(path) and not path.startswith(gone)}
    return _stated(plan, kept, quantization)


def drafted_rows_bytes(
    plan: DecoderPlan, spans: Sequence[tuple[int, int]], quantization: Quantization | None, item: int = 0
) -> int:
    """Bytes of the rows of the output matrix that a head keeps once more, those of the ids it drafts; 0 for all ids.

    They are stored as the config states, or with values of `item` bytes where that is given.
    """
    ids = sum(max(0, min(stop, plan.head.vocabulary) - max(0, start)) for start, stop in spans)
    path = "embedding" if plan.head.tied else "head"
    slot = plan.tensors.slots[path]
    whole = item * math.prod(slot.weight.shape) if item else _stated(plan, {path: slot}, quantization)
    return whole * ids // plan.head.vocabulary


def drafter_bytes(drafter: DFlashDrafter, bits: int, item: int = 2) -> int:
    """Bytes of a drafter's weights, its matrices at `bits` (0: values of `item` bytes)."""
    values = parameters(drafter_weights(drafter))
    return values * bits // 8 + values // _DRAFTER_GROUP * _SCALE_BYTES if bits else values * item


def _stays(path: str) -> bool:
    """Whether a slot's values stay in their file."""
    return path.rpartition(".")[2] == "table"


def _stated(plan: DecoderPlan, slots: Mapping[str, Slot], quantization: Quantization | None) -> int:
    return estimated_bytes(replace(plan, tensors=replace(plan.tensors, slots=slots)), quantization)
