"""Hyper-connections and what reads out streams: the values of the float64 formulas, and a row's bits at every width."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.readout import ReadoutBlock
from tensorfold.adapters.mlx.blocks.residual import residual_block
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.domain.families.plans import Plain
from tensorfold.kernels.reference.hyper_connections import (
    lowrank_input,
    lowrank_output,
    sinkhorn_input,
    sinkhorn_output,
    sinkhorn_weights,
)
from tests.adapters.mlx.blocks.one_op import DEVICES, weights_of
from tests.adapters.mlx.tiny_families import TinyFamily
from tests.reference.reference_layers import read_out
from tests.reference.reference_ops import Slots
from tests.reference.slot_reader import SlotReader

STREAMS, WIDTH = 4, 64
FAMILIES = {"sinkhorn": "glm", "lowrank": "qwen"}
SITE = "layers.0.mlp"


@pytest.fixture(params=sorted(DEVICES))
def ops(request: Any) -> Iterator[RowOps[Any]]:
    made = DEVICES[request.param]()
    yield made
    made.close()


@pytest.fixture(params=sorted(FAMILIES))
def family(request: Any) -> TinyFamily:
    found: TinyFamily = request.getfixturevalue(FAMILIES[request.param])
    return found


def assembly(family: TinyFamily, ops: RowOps[Any]) -> Assembly[Any]:
    return Assembly(ops, weights_of(family), family.plan.width, family.plan.streams)


def drawn(seed: int, rows: int, width: int) -> Any:
    """Rows whose streams differ in size, as trained ones do."""
    made = np.random.default_rng(seed).standard_normal((rows, width))
    return (made * np.repeat(np.linspace(0.2, 3.0, width // WIDTH), WIDTH)).astype(np.float32)


def passed(family: TinyFamily, ops: RowOps[Any], streams: Any, made: Any) -> tuple[Any, Any]:
    """What a site reads of some rows, and the residual with an op's rows in it."""
    site = next(sublayer for sublayer in family.plan.layers[0] if sublayer.name == "mlp")
    block = residual_block(assembly(family, ops), site.residual, f"{SITE}.residual")
    entered, mix = block.read(ops.float32(streams))
    left = block.write(ops.float32(streams), ops.float32(made), mix)
    return ops.host(entered), ops.host(left)


def expected(family: TinyFamily, streams: Any, made: Any) -> tuple[Any, Any]:
    """The same of one row, in float64."""
    site = next(sublayer for sublayer in family.plan.layers[0] if sublayer.name == "mlp")
    plan, slots = site.residual, Slots(SlotReader.of(family.folder, family.plan.tensors), f"{SITE}.residual")
    assert not isinstance(plan, Plain)
    wide = streams.astype(np.float64).reshape(plan.streams, -1)
    if plan.form == "lowrank":
        normed = slots.norm("norm", plan.norm, wide.reshape(-1)).reshape(wide.shape)
        return lowrank_input(normed, slots["down"], slots["up"]), lowrank_output(wide, normed, slots["inject"], made)
    weights = sinkhorn_weights(
        wide, slots["projection"], slots["base"], slots["scale"], plan.norm.eps, plan.iterations, plan.eps
    )
    return sinkhorn_input(wide, weights), sinkhorn_output(wide, weights, made)


def test_a_site_reads_and_writes_what_the_formulas_say(family: TinyFamily, ops: RowOps[Any]) -> None:
    streams, made = drawn(1, 8, STREAMS * WIDTH), drawn(2, 8, WIDTH)
    entered, left = passed(family, ops, streams, made)
    for row in range(8):
        into, out = expected(family, streams[row], made[row].astype(np.float64))
        assert np.abs(entered[row] - into).max() <= 1e-5 * np.abs(into).max()
        assert np.abs(left[row] - out.reshape(-1)).max() <= 1e-5 * np.abs(out).max()


@pytest.mark.slow
def test_a_row_has_the_same_bits_whatever_rows_stand_beside_it(family: TinyFamily, ops: RowOps[Any]) -> None:
    streams, made = drawn(3, 33, STREAMS * WIDTH), drawn(4, 33, WIDTH)
    alone = [passed(family, ops, streams[row : row + 1], made[row : row + 1]) for row in range(33)]
    for width in (*range(2, 17), 33):
        entered, left = passed(family, ops, streams[:width], made[:width])
        assert np.array_equal(entered, np.concatenate([one[0] for one in alone[:width]])), width
        assert np.array_equal(left, np.concatenate([one[1] for one in alone[:width]])), width
    turned = passed(family, ops, np.ascontiguousarray(streams[::-1]), np.ascontiguousarray(made[::-1]))
    assert np.array_equal(turned[0][::-1], np.concatenate([one[0] for one in alone]))


def test_a_readout_gives_what_the_formulas_say_with_the_same_bits_at_every_width(
    family: TinyFamily, ops: RowOps[Any]
) -> None:
    streams = drawn(5, 16, STREAMS * WIDTH)
    block: ReadoutBlock[Any] = ReadoutBlock(assembly(family, ops), family.plan.readout, "readout")
    made = ops.host(block(ops.float32(streams)))
    slots = Slots(SlotReader.of(family.folder, family.plan.tensors), "readout")
    for row in range(16):
        wide = streams[row].astype(np.float64).reshape(STREAMS, WIDTH)
        one = read_out(family.plan.readout, slots, wide)
        assert np.abs(made[row] - one).max() <= 1e-5 * np.abs(one).max()
        assert np.array_equal(ops.host(block(ops.float32(streams[row : row + 1])))[0], made[row])


def test_streams_that_differ_in_size_do_not_reach_one_another_through_a_mean_of_their_norms(
    qwen: TinyFamily, ops: RowOps[Any]
) -> None:
    streams, made = drawn(6, 1, STREAMS * WIDTH), drawn(7, 1, WIDTH)
    before, _ = passed(qwen, ops, streams, made)
    larger = streams.copy()
    larger[:, :WIDTH] *= 1e4
    after, _ = passed(qwen, ops, larger, made)
    # Each stream is normed by itself, so a larger one weighs no more than before.
    assert np.abs(after - before).max() <= 1e-3
