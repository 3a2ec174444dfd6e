"""Routed and shared experts: near their float64 reference, in slot order, the same bits in any window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.mlx.blocks import experts
from tensorfold.adapters.mlx.blocks.experts import combined
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.weights import Codes, Stack, Values, as_float32, decoded
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, Router, SharedExpert, SwiGLU
from tensorfold.domain.windows import chain
from tensorfold.kernels.reference.experts import mix_experts, shared_expert
from tensorfold.kernels.reference.feed_forward import feed_forward
from tensorfold.kernels.reference.router import choose_experts
from tensorfold.kernels.reference.swiglu import swiglu
from tests.adapters.mlx.blocks.held_op import (
    OneOp,
    arithmetics,
    assert_trees_keep_bits,
    assert_windows_keep_bits,
    rows_of,
)

Exact = NDArray[np.float64]
WIDTH, INNER, LATENT = 20, 14, 10
OPS = arithmetics()
SOFT, SIGMOID = Router(8, 3, "softmax"), Router(8, 3, "sigmoid", correction=True, scale=2.5)
GATED, PLAIN = SwiGLU(INNER), FeedForward(INNER)
PLANS = {
    "gated": MixtureOfExperts(SOFT, GATED),
    "gelu": MixtureOfExperts(SOFT, SwiGLU(INNER, "gelu_tanh")),
    "limited": MixtureOfExperts(SIGMOID, SwiGLU(INNER, limit=0.4), SharedExpert(SwiGLU(INNER, limit=0.4))),
    "ungated": MixtureOfExperts(SIGMOID, PLAIN, SharedExpert(FeedForward(2 * INNER))),
    "switched": MixtureOfExperts(SOFT, GATED, SharedExpert(SwiGLU(INNER), gated=True)),
    "latent": MixtureOfExperts(SIGMOID, PLAIN, SharedExpert(PLAIN), latent=LATENT),
}


def reference(one: OneOp, plan: MixtureOfExperts, row: Exact) -> Exact:
    router = plan.router
    chosen, weights = choose_experts(
        one.exact("router") @ row,
        router.chosen,
        router.scoring,
        correction=one.exact("router.correction") if router.correction else None,
        scale=router.scale,
    )

    def through(op: SwiGLU | FeedForward, slots: str, entry: int | None) -> Callable[[Exact], Exact]:
        def held(name: str) -> Exact:
            values = one.exact(f"{slots}.{name}")
            return values if entry is None else values[entry]

        if isinstance(op, SwiGLU):
            return lambda x: swiglu(x, held("gate"), held("up"), held("down"), op.activation, op.limit)
        return lambda x: feed_forward(x, held("up"), held("down"), op.activation)

    read = one.exact("latent_down") @ row if plan.latent else row
    total = mix_experts(read, chosen, weights, lambda entry, x: through(plan.expert, "experts", entry)(x))
    total = one.exact("latent_up") @ total if plan.latent else total
    if plan.shared is None:
        return total
    switch = one.exact("shared.switch") if plan.shared.gated else None
    return total + shared_expert(row, through(plan.shared.op, "shared", None)(row), switch)


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize("form", sorted(PLANS))
def test_rows_stay_near_the_reference(name: str, form: str) -> None:
    plan = PLANS[form]
    one = OneOp(OPS[name], plan, WIDTH)
    rows = rows_of(3, 21, WIDTH)
    made = one.run((one.open(), rows, chain(0, [0] * 20)))
    wanted = np.array([reference(one, plan, row) for row in rows.astype(np.float64)])
    assert np.abs(made - wanted).max() <= 3e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize("form", ["gelu", "limited", "latent"])
@pytest.mark.slow
def test_a_row_is_the_same_in_any_window(name: str, form: str) -> None:
    one = OneOp(OPS[name], PLANS[form], WIDTH)
    assert one.entries == []
    assert_windows_keep_bits(one)
    assert_trees_keep_bits(one)


def test_a_row_that_leans_on_its_neighbours_is_noticed() -> None:
    def leaning(ops: RowOps[Any], made: Any, weights: Any) -> Any:
        return combined(ops, made, weights) * np.float32(1 + 1e-6 * (len(made) - 1))

    with mock.patch.object(experts, "combined", leaning), pytest.raises(AssertionError):
        assert_windows_keep_bits(OneOp(OPS["rows"], PLANS["gelu"], WIDTH))


@pytest.mark.parametrize("name", sorted(OPS))
def test_experts_are_added_in_slot_order(name: str) -> None:
    ops = OPS[name]
    made = ops.float32(np.array([[[1e8], [1.0], [-1e8]], [[1e8], [-1e8], [1.0]]], np.float32))
    total = ops.host(combined(ops, made, ops.float32(np.ones((2, 3), np.float32))))
    assert total.tolist() == [[0.0], [1.0]]


def test_experts_of_half_precision_rows_are_added_in_float32() -> None:
    ops = LibraryRows("bfloat16")
    made = ops.constant(np.array([[[256.0], [1.0]]], np.float32))
    total = combined(ops, made, ops.float32(np.ones((1, 2), np.float32)))
    assert ops.host(total).tolist() == [[257.0]]


@pytest.mark.parametrize(("bits", "group"), [(4, 64), (8, 32)])
def test_stacks_in_codes_multiply_as_the_values_they_stand_for(bits: int, group: int) -> None:
    entries, outputs, inputs = 5, 16, 64
    values = rows_of(1, entries * outputs, inputs).reshape(entries, outputs, inputs)
    words, scales, offsets = (np.array(part) for part in mx.quantize(mx.array(values), group, bits))
    bias = rows_of(2, entries, outputs)
    stack = Stack(Codes(words, scales, offsets, bits, group, "F32"), (entries, outputs, inputs), bias)
    exact = decoded(stack.stored).astype(np.float64)  # type: ignore[arg-type]
    ids = np.array([[0, 4], [2, 2], [3, 1]])
    rows = rows_of(3, 3, inputs)
    wanted = np.einsum("rknd,rd->rkn", exact[ids], rows.astype(np.float64)) + bias[ids]
    forms: tuple[RowOps[Any], ...] = (CpuRows(), CpuRows(unpack=False), LibraryRows("float32"))
    for ops in forms:
        made = ops.host(ops.grouped(stack)(ops.float32(rows)[:, None], mx.array(ids) if ops.xp is mx else ids))
        assert np.abs(made - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
def test_stacks_in_half_precision_multiply_as_their_values(dtype: str) -> None:
    values = rows_of(4, 5 * 16, 64).reshape(5, 16, 64)
    raw = (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "BF16" else values.astype(np.float16)
    stack = Stack(Values(raw, dtype), (5, 16, 64), rows_of(5, 5, 16))
    exact = as_float32(stack.stored).astype(np.float64)
    ids, rows = np.array([[0, 4], [2, 2], [3, 1]]), rows_of(6, 3, 64)
    wanted = np.einsum("rknd,rd->rkn", exact[ids], rows.astype(np.float64)) + stack.bias[ids]  # type: ignore[index]
    wide: tuple[RowOps[Any], ...] = (CpuRows(), LibraryRows("float32"))
    half: tuple[RowOps[Any], ...] = (CpuRows(unpack=False), LibraryRows("bfloat16"))
    for ops, near in (*((ops, 1e-6) for ops in wide), *((ops, 2e-2) for ops in half)):
        given = ops.narrow(ops.float32(rows))[:, None]
        made = ops.host(ops.grouped(stack)(given, mx.array(ids) if ops.xp is mx else ids))
        assert np.abs(made - wanted).max() <= near * np.abs(wanted).max()


def test_stacks_left_in_half_precision_keep_a_rows_bits() -> None:
    stack = Stack(Values(rows_of(7, 4 * 24, 48).reshape(4, 24, 48).astype(np.float16), "F16"), (4, 24, 48))
    grouped, rows = CpuRows(unpack=False).grouped(stack), rows_of(8, 9, 48)[:, None]
    ids: Any = np.argsort(rows_of(9, 9, 4), axis=1)[:, :2]
    alone = np.concatenate([grouped(rows[i : i + 1], ids[i : i + 1]) for i in range(9)])
    for count in range(1, 10):
        assert np.array_equal(grouped(rows[:count], ids[:count]), alone[:count])
