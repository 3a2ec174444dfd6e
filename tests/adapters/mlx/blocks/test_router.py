"""The choice of experts under every rule of a plan, near ties and exact ties included."""

from __future__ import annotations

from itertools import product
from typing import Any, Literal
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.router import RouterBlock, best
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.domain.families.ops import FeedForward, MixtureOfExperts, Norm, Router
from tensorfold.kernels.reference.router import choose_experts, router_input
from tests.adapters.mlx.blocks.held_op import PATH, HeldWeights, arithmetics, random_weights, rows_of

WIDTH, EXPERTS, CHOSEN = 20, 12, 4
OPS = arithmetics()
_SCORINGS: tuple[Literal["softmax", "sigmoid"], ...] = ("softmax", "sigmoid")
RULES = [
    Router(EXPERTS, CHOSEN, scoring, normalize, over_chosen, correction, scale, expert_scale=expert_scale)
    for scoring, normalize, over_chosen, correction, scale, expert_scale in product(
        _SCORINGS, (True, False), (True, False), (True, False), (1.0, 2.5), (True, False)
    )
]
READS = [
    Router(EXPERTS, CHOSEN, "softmax", from_residual=True, input_norm=norm, input_factor=factor, input_scale=scale)
    for norm, factor, scale in product((None, Norm(1e-6, weight=False), Norm(1e-6)), (1.0, 0.25), (True, False))
]


def built(ops: RowOps[Any], plan: Router, **planted: NDArray[np.float32]) -> tuple[RouterBlock[Any], HeldWeights]:
    """A router of random weights but for those that are planted."""
    weights = random_weights(MixtureOfExperts(plan, FeedForward(4)), WIDTH, 1, planted)
    reader: Any = weights
    return RouterBlock(Assembly(ops, reader, WIDTH), plan, f"{PATH}.router"), weights


def wanted(plan: Router, weights: HeldWeights, row: NDArray[np.float64]) -> tuple[list[int], NDArray[np.float64]]:
    held = {path.removeprefix(f"{PATH}."): values.astype(np.float64) for path, values in weights.values.items()}
    if plan.input_norm is None:
        row = row * plan.input_factor * held.get("router.input_scale", 1.0)
    else:
        eps, scale = plan.input_norm.eps, held.get("router.input_scale")
        row = router_input(row, held.get("router.norm"), eps, plan.input_factor, scale)
    return choose_experts(
        held["router"] @ row,
        plan.chosen,
        plan.scoring,
        normalize=plan.normalize,
        over_chosen=plan.over_chosen,
        correction=held.get("router.correction"),
        scale=plan.scale,
        expert_scale=held.get("router.expert_scale"),
    )


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_rule_chooses_and_weighs_as_the_reference(name: str) -> None:
    rows, residual = rows_of(2, 9, WIDTH), rows_of(3, 9, WIDTH)
    ops = OPS[name]
    for plan in (*RULES, *READS):
        block, weights = built(ops, plan)
        ids, made = block(ops.float32(rows), ops.float32(residual))
        for row, (chosen, shares) in enumerate(zip(np.array(ids), ops.host(made), strict=True)):
            read = residual if plan.from_residual else rows
            expected, exact = wanted(plan, weights, read[row].astype(np.float64))
            assert chosen.tolist() == expected, plan
            assert np.abs(shares - exact).max() <= 2e-6 * np.abs(exact).max(), plan


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_rule_gives_a_row_its_bits_in_any_company(name: str) -> None:
    rows, residual = rows_of(2, 17, WIDTH), rows_of(3, 17, WIDTH)
    ops = OPS[name]
    for plan in (*RULES, *READS):
        block, _ = built(ops, plan)
        every = [np.array(part) for part in block(ops.float32(rows), ops.float32(residual))]
        for start, stop in ((0, 1), (5, 6), (16, 17), (3, 7), (1, 17)):
            some = block(ops.float32(rows[start:stop]), ops.float32(residual[start:stop]))
            for part, whole in zip(some, every, strict=True):
                assert np.array_equal(np.array(part), whole[start:stop]), plan


@pytest.mark.parametrize("name", sorted(OPS))
def test_of_equal_scores_the_lower_id_comes_first(name: str) -> None:
    ops = OPS[name]
    scores = np.array(
        [
            [0.5, 0.75, 0.5, 0.75, 0.5, 0.25],
            [0.0, -0.0, 0.0, -0.0, 0.0, -0.0],
            [-1.0, -2.0, -1.0, -2.0, -3.0, -1.0],
            [-0.5, 0.0, 0.5, -0.0, 0.5, -np.inf],
        ],
        np.float32,
    )
    found = np.array(best(ops.xp, ops.float32(scores), 5))
    assert found.tolist() == np.argsort(-scores, axis=1, kind="stable")[:, :5].tolist()
    assert found[1].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("name", sorted(OPS))
def test_many_ties_among_many_experts_are_told_apart_by_id(name: str) -> None:
    ops = OPS[name]
    for experts in (8, 128, 288, 512):
        scores = np.round(rows_of(4, 33, experts) * 4) / np.float32(4)
        found = np.array(best(ops.xp, ops.float32(scores), 8))
        assert found.tolist() == np.argsort(-scores, axis=1, kind="stable")[:, :8].tolist()


@pytest.mark.parametrize("name", sorted(OPS))
def test_a_correction_moves_the_choice_and_no_weight(name: str) -> None:
    ops, plan = OPS[name], Router(EXPERTS, 2, "sigmoid", normalize=False, correction=True)
    router = np.zeros((EXPERTS, WIDTH), np.float32)
    correction = np.zeros(EXPERTS, np.float32)
    correction[[7, 3]] = 2.0, 1.0
    block, _ = built(ops, plan, router=router, **{"router.correction": correction})
    ids, weights = block(ops.float32(rows_of(5, 3, WIDTH)), ops.float32(rows_of(5, 3, WIDTH)))
    assert np.array(ids).tolist() == [[7, 3]] * 3
    assert ops.host(weights).tolist() == [[0.5, 0.5]] * 3


@pytest.mark.parametrize("name", sorted(OPS))
def test_scores_that_all_vanish_divide_by_no_zero(name: str) -> None:
    ops, plan = OPS[name], Router(EXPERTS, 2, "sigmoid")
    block, _ = built(ops, plan, router=np.full((EXPERTS, WIDTH), -100.0, np.float32))
    rows = ops.float32(np.ones((2, WIDTH), np.float32))
    assert ops.host(block(rows, rows)[1]).tolist() == [[0.0, 0.0]] * 2


def _near_tie() -> NDArray[np.float32]:
    """Two experts whose logits of a row of ones differ by less than bfloat16 can tell; the later one is better."""
    router = np.zeros((EXPERTS, WIDTH), np.float32)
    router[3, 0], router[5, :2] = 4.0, (4.0, 2.0**-9)
    return router


def _chosen_in_halves() -> list[list[int]]:
    ops = LibraryRows("bfloat16")
    block, _ = built(ops, Router(EXPERTS, 2, "softmax"), router=_near_tie())
    rows = ops.constant(np.ones((3, WIDTH), np.float32))
    chosen: list[list[int]] = np.array(block(rows, rows)[0]).tolist()
    return chosen


def test_rows_in_half_precision_choose_by_float32_logits() -> None:
    assert _chosen_in_halves() == [[5, 3]] * 3


def test_logits_rounded_to_the_rows_dtype_would_choose_another() -> None:
    with mock.patch.object(LibraryRows, "float32_product", LibraryRows.product):
        assert _chosen_in_halves() == [[3, 5]] * 3


def test_matrices_left_as_stored_choose_by_float32_logits() -> None:
    plan = Router(EXPERTS, CHOSEN, "sigmoid", correction=True, scale=2.5)
    rows = rows_of(6, 7, WIDTH)
    (ids, weights), (same, close) = (built(ops, plan)[0](rows, rows) for ops in (CpuRows(), CpuRows(unpack=False)))
    assert np.array_equal(ids, same)
    assert np.abs(weights - close).max() <= 1e-6
