"""Memory while a model's experts are read and unpacked: one stack, and at most a few of its matrices beside it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.weights import Codes, Stack, Values, WeightReader
from tensorfold.domain.families.binding import resolve
from tests.adapters.mlx.blocks.held_op import rows_of
from tests.synthetic.plan_checkpoints import PLANS, write_checkpoint
from tests.synthetic.tiny_configs import tiny

ENTRIES, OUTPUTS, INPUTS = 32, 128, 64


def peak_of(call: Callable[[], object]) -> int:
    """Bytes held at most during a call beyond those before it, the result's among them."""
    tracemalloc.start()
    try:
        kept = call()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del kept
    return peak


def test_experts_stored_one_by_one_are_copied_as_they_are_read(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "n_routed_experts": ENTRIES,
        "moe_intermediate_size": OUTPUTS,
        "num_nextn_predict_layers": 0,
    }
    fields |= {"hybrid_override_pattern": "ME", "num_hidden_layers": 2}
    config = tiny("nemotron_h", **fields)
    facts = FolderReader().facts(write_checkpoint(tmp_path / "checkpoint", config, form="hf"))
    plan = PLANS["nemotron_h"](config)
    bound = resolve(plan, facts.tensors, None)
    path = next(path for path in bound if path.endswith("experts.up"))
    assert len(bound[path].modules) == ENTRIES
    reader = WeightReader(bound, facts, lambda line: None)
    stack = reader.stack(path)
    assert stack.shape == (ENTRIES, OUTPUTS, INPUTS)
    size = 4 * ENTRIES * OUTPUTS * INPUTS
    assert size <= peak_of(lambda: reader.stack(path)) <= 1.25 * size


@pytest.mark.parametrize("form", ["F32", "BF16", "codes"])
def test_experts_are_unpacked_once(form: str) -> None:
    values = rows_of(1, ENTRIES * OUTPUTS, INPUTS).reshape(ENTRIES, OUTPUTS, INPUTS)
    stored: Values | Codes = Values(values, "F32")
    if form == "BF16":
        stored = Values((values.view(np.uint32) >> 16).astype(np.uint16), "BF16")
    elif form == "codes":
        words, scales, biases = (np.array(part) for part in mx.quantize(mx.array(values), 64, 4))
        stored = Codes(words, scales, biases, 4, 64, "F32")
    stack = Stack(stored, (ENTRIES, OUTPUTS, INPUTS))
    ops = CpuRows()
    ops.grouped(stack)
    wanted = 0 if form == "F32" else values.nbytes
    assert wanted <= peak_of(lambda: ops.grouped(stack)) <= wanted + 0.25 * values.nbytes
