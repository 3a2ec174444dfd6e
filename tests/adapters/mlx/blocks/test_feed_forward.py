"""The MLP without a gate: near its float64 reference, the same bits in any window."""

from __future__ import annotations

import numpy as np
import pytest

from tensorfold.domain.families.ops import Activation, FeedForward
from tensorfold.domain.windows import chain
from tensorfold.kernels.reference.activations import ACTIVATIONS
from tensorfold.kernels.reference.linear import linear
from tests.adapters.mlx.blocks.held_op import OneOp, arithmetics, assert_windows_keep_bits, rows_of

OPS = arithmetics()


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize("activation", ["relu2", "silu", "gelu_tanh"])
@pytest.mark.parametrize("bias", [False, True])
def test_rows_stay_near_the_reference(name: str, activation: Activation, bias: bool) -> None:
    one = OneOp(OPS[name], FeedForward(34, activation, bias), 20)
    rows = rows_of(3, 18, 20)
    biases = {path: values.astype(np.float64) for path, values in one.weights.biases.items()}
    inner = linear(rows.astype(np.float64), one.exact("up"), biases.get("op.up"))
    wanted = linear(ACTIVATIONS[activation](inner), one.exact("down"), biases.get("op.down"))
    made = one.run((one.open(), rows, chain(0, [0] * 17)))
    assert np.abs(made - wanted).max() <= 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("name", sorted(OPS))
def test_a_row_is_the_same_in_any_window(name: str) -> None:
    assert_windows_keep_bits(OneOp(OPS[name], FeedForward(34), 20))
