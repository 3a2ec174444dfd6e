"""The norms against MLX's own, and by hand where a small eps would hide."""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from tensorfold.kernels.reference.norm import layer_norm, rms_norm, unit_length
from tests.kernels.reference.rows import Floats, normal


def single(values: Floats) -> mx.array:
    return mx.array(values.astype(np.float32))


def test_the_rms_norm_is_that_of_mlx_at_a_large_eps() -> None:
    rows, weight = normal(1, 3, 24), normal(2, 24)
    theirs = np.array(mx.fast.rms_norm(single(rows), single(weight), 0.3))
    assert np.abs(rms_norm(rows, weight, 0.3) - theirs).max() < 1e-5


def test_the_layer_norm_is_that_of_mlx_at_a_large_eps() -> None:
    rows, weight, bias = normal(3, 3, 24), normal(4, 24), normal(5, 24)
    theirs = np.array(mx.fast.layer_norm(single(rows), single(weight), single(bias), 0.3))
    assert np.abs(layer_norm(rows, weight, bias, 0.3) - theirs).max() < 1e-5


def test_a_grouped_norm_norms_each_part_by_itself() -> None:
    row = np.array([3.0, 4.0, 0.3, 0.4])
    root = np.sqrt(12.5)
    expected = [3 / root, 4 / root, 3 / root, 4 / root]
    assert np.allclose(rms_norm(row, None, 0.0, groups=2), expected, atol=1e-12)
    assert not np.allclose(rms_norm(row, None, 0.0), expected, atol=0.1)
    assert np.allclose(rms_norm(row, np.arange(4.0), 0.0, groups=2), np.arange(4.0) * expected, atol=1e-12)


def test_unit_length_adds_eps_to_the_sum_of_squares_and_not_to_their_mean() -> None:
    assert np.allclose(unit_length(np.array([3.0, 4.0]), 11.0), [0.5, 4 / 6], atol=1e-12)
