"""Convolutions of the fewest taps: nothing is held of a lane's past, and a tree's path is kept all the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.blocks.short_conv import ConvState
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.domain.families.ops import ShortConv
from tensorfold.domain.windows import chain, tree
from tests.adapters.mlx.blocks.one_op import DEVICES

CHANNELS = 4
FORKED = tree(0, [0] * 4, [0, 0, 2, 2])
PATH = (0, 2, 4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dilation", (1, 3))
@pytest.mark.parametrize("kernel", (1, 2))
def test_a_path_of_a_tree_leaves_what_its_rows_leave_one_by_one(device: str, kernel: int, dilation: int) -> None:
    ops: RowOps[Any] = DEVICES[device]()
    plan = ShortConv(CHANNELS, kernel, dilation=dilation)
    rows = np.random.default_rng(3).standard_normal((len(FORKED), CHANNELS)).astype(np.float32)
    weight = ops.float32(np.ones((kernel, CHANNELS), np.float32))
    state, serial = ConvState(ops, plan, CHANNELS), ConvState(ops, plan, CHANNELS)
    made = ops.host(state.run(ops.constant(rows), weight, None, lay_out(FORKED, 0)))
    state.keep(PATH)
    for row in PATH:
        alone = serial.run(ops.constant(rows[row : row + 1]), weight, None, lay_out(chain(0), serial.length))
        assert np.array_equal(ops.host(alone), made[row : row + 1])
        serial.keep((0,))
    assert state.export() == serial.export()
    ops.close()
