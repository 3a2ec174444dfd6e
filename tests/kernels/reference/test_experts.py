"""The router's rules by hand, and the order of sums."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.reference.activations import sigmoid, softmax
from tensorfold.kernels.reference.experts import mix_experts, shared_expert
from tensorfold.kernels.reference.router import choose_experts, router_input
from tests.kernels.reference.rows import normal

LOGITS = np.array([0.1, 2.0, -1.0, 1.0, 0.5])


def test_a_softmax_is_over_all_experts_before_it_is_normalised() -> None:
    chosen, weights = choose_experts(LOGITS, 2, "softmax", normalize=False)
    assert chosen == [1, 3] and np.allclose(weights, softmax(LOGITS)[[1, 3]])
    assert np.allclose(choose_experts(LOGITS, 2, "softmax")[1], softmax(LOGITS[[1, 3]]))


def test_a_softmax_over_the_chosen_is_a_normalised_one() -> None:
    assert np.allclose(
        choose_experts(LOGITS, 3, "softmax", over_chosen=True, normalize=False)[1],
        choose_experts(LOGITS, 3, "softmax")[1],
    )


def test_a_correction_chooses_but_does_not_weigh() -> None:
    correction = np.array([0.0, 0.0, 9.0, 0.0, 0.0])
    chosen, weights = choose_experts(LOGITS, 2, "sigmoid", correction=correction, scale=2.5)
    scores = sigmoid(LOGITS)[[2, 1]]
    assert chosen == [2, 1] and np.allclose(weights, 2.5 * scores / scores.sum())


def test_equal_experts_are_chosen_by_the_lower_id() -> None:
    assert choose_experts(np.array([1.0, 2.0, 1.0, 2.0, 1.0]), 3, "softmax")[0] == [1, 3, 0]


def test_learnt_scales_of_experts_come_last() -> None:
    scale = np.array([1.0, 10.0, 1.0, 100.0, 1.0])
    _, weights = choose_experts(LOGITS, 2, "softmax", expert_scale=scale)
    assert np.allclose(weights, softmax(LOGITS[[1, 3]]) * [10.0, 100.0])


def test_the_routers_own_input_is_normed_then_scaled() -> None:
    row, scale = normal(1, 4), normal(2, 4)
    root = np.sqrt(np.mean(row * row) + 0.1)
    assert np.allclose(router_input(row, None, 0.1, 0.5, scale), row / root * 0.5 * scale)


def test_experts_are_weighed_and_a_switch_closes_the_shared_one() -> None:
    row = normal(3, 4)
    mixed = mix_experts(row, [3, 1], np.array([0.25, 0.75]), lambda expert, x: expert * x)
    assert np.allclose(mixed, (0.25 * 3 + 0.75) * row)
    assert np.allclose(shared_expert(row, 2 * row, np.zeros((1, 4))), row)
    assert np.array_equal(shared_expert(row, 2 * row, None), 2 * row)
