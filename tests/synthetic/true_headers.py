"""The headers that a checkpoint of a model of true geometry would have, without a byte of it: for memory estimates."""

from __future__ import annotations

from collections.abc import Mapping

from tensorfold.domain.families.binding import Bound, resolve
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import Layout, Quantization, TensorHeader
from tests.synthetic.publications import Publication, Quantized
from tests.synthetic.slot_values import SlotValues
from tests.synthetic.stored_slots import stored_slots

_FILE = "model.safetensors"


def true_headers(plan: DecoderPlan, bits: int = 4, group: int = 64) -> dict[str, TensorHeader]:
    """Name, dtype, shape and place of every tensor, affine codes wherever a module's rows are whole groups."""
    quantized = Quantized(Layout(bits, group), {"*.gate": None})  # a router stays as it is
    headers: dict[str, TensorHeader] = {}
    at = 0
    for one in stored_slots(plan.tensors, SlotValues.of(plan, 1), Publication(), "BF16", quantized):
        headers[one.name] = TensorHeader(one.name, one.dtype, one.shape, _FILE, at, at + one.nbytes)
        at += one.nbytes
    return headers


def true_bound(plan: DecoderPlan, bits: int = 4, group: int = 64) -> Mapping[str, Bound]:
    """Every slot with the tensors that fill it."""
    return resolve(plan, true_headers(plan, bits, group), Quantization(Layout(bits, group)))
