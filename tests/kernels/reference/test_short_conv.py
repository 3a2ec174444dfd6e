"""The short convolution, row by row, against MLX's convolution over the whole sequence."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.kernels.reference.activations import silu
from tensorfold.kernels.reference.short_conv import no_history, short_conv
from tests.kernels.reference.rows import normal


@pytest.mark.parametrize(("kernel", "dilation"), [(4, 1), (4, 3), (2, 1), (1, 1)])
def test_rows_one_by_one_equal_a_causal_convolution(kernel: int, dilation: int) -> None:
    rows, taps, bias = normal(1, 15, 6), normal(2, 6, kernel), normal(3, 6)
    past = (kernel - 1) * dilation
    padded = np.concatenate([np.zeros((past, 6)), rows]).astype(np.float32)
    weight = mx.array(taps[:, :, None].astype(np.float32))
    theirs = np.array(mx.conv1d(mx.array(padded)[None], weight, dilation=dilation, groups=6))[0] + bias
    history = no_history(6, kernel, dilation)
    for row, expected in zip(rows, theirs, strict=True):
        made, history = short_conv(history, row, taps, dilation, bias, None)
        assert np.abs(made - expected).max() < 1e-5
    assert history.shape == (past, 6) and np.array_equal(history, rows[len(rows) - past :])


def test_the_last_tap_is_the_rows_own_and_the_activation_comes_after_the_bias() -> None:
    taps = np.array([[0.0, 0.0, 2.0]])
    made, history = short_conv(np.array([[5.0], [7.0]]), np.array([3.0]), taps, bias=np.array([1.0]))
    assert np.allclose(made, silu(np.array([7.0]))) and history.tolist() == [[7.0], [3.0]]
