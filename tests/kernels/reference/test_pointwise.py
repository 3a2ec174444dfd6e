"""Activations, gates and MLPs against MLX's own or by hand."""

from __future__ import annotations

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from tensorfold.kernels.reference.activations import ACTIVATIONS, relu2, sigmoid, soft_cap, softmax, softplus
from tensorfold.kernels.reference.feed_forward import feed_forward
from tensorfold.kernels.reference.linear import linear
from tensorfold.kernels.reference.swiglu import gated, swiglu
from tests.kernels.reference.rows import normal

GRID = np.linspace(-6, 6, 49)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("silu", nn.silu), ("gelu_tanh", nn.gelu_approx), ("relu2", nn.relu2)],
    ids=("silu", "gelu_tanh", "relu2"),
)
def test_an_activation_is_that_of_mlx(name: str, theirs: object) -> None:
    assert callable(theirs)
    assert np.abs(ACTIVATIONS[name](GRID) - np.array(theirs(mx.array(GRID.astype(np.float32))))).max() < 2e-6


def test_gelu_is_the_tanh_form_and_not_the_exact_one() -> None:
    exact = np.array(nn.gelu(mx.array(GRID.astype(np.float32))))
    assert np.abs(ACTIVATIONS["gelu_tanh"](GRID) - exact).max() > 1e-4


def test_nothing_overflows_far_from_zero() -> None:
    far = np.array([-1e4, 1e4])
    with np.errstate(over="raise", invalid="raise"):
        assert sigmoid(far).tolist() == [0.0, 1.0]
        assert softplus(far).tolist() == [0.0, 1e4]
        assert softmax(far).tolist() == [0.0, 1.0]


def test_softplus_is_the_log_of_one_plus_the_exponential() -> None:
    assert np.allclose(softplus(GRID), np.log(1 + np.exp(GRID)), atol=1e-12)


def test_a_soft_cap_bends_and_zero_is_none() -> None:
    assert np.allclose(soft_cap(np.array([30.0, -300.0]), 30.0), [30 * np.tanh(1), 30 * np.tanh(-10)])
    assert soft_cap(GRID, 0.0) is GRID


def test_a_limit_cuts_the_gate_above_and_the_other_half_on_both_sides() -> None:
    gate, up = np.array([5.0, -5.0, 1.0]), np.array([1.0, -5.0, 5.0])
    silu = ACTIVATIONS["silu"]
    assert np.allclose(gated(gate, up, "silu", 2.0), silu(np.array([2.0, -5.0, 1.0])) * [1.0, -2.0, 2.0])
    assert np.allclose(gated(gate, up), silu(gate) * up)


def test_the_activation_is_on_the_gate() -> None:
    row, gate, up, down = normal(1, 5), normal(2, 7, 5), normal(3, 7, 5), normal(4, 5, 7)
    expected = down @ (ACTIVATIONS["gelu_tanh"](gate @ row) * (up @ row))
    assert np.allclose(swiglu(row, gate, up, down, "gelu_tanh"), expected, atol=1e-12)
    assert not np.allclose(swiglu(row, up, gate, down, "gelu_tanh"), expected, atol=1e-3)


def test_a_feed_forward_squares_what_is_positive() -> None:
    row, up, down = normal(5, 5), normal(6, 7, 5), normal(7, 5, 7)
    assert np.allclose(feed_forward(row, up, down), down @ np.where(up @ row > 0, (up @ row) ** 2, 0), atol=1e-12)
    assert relu2(np.array([-2.0, 3.0])).tolist() == [0.0, 9.0]


def test_a_projection_has_outputs_first() -> None:
    assert linear(np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), np.ones(3)).tolist() == [
        2,
        3,
        4,
    ]
