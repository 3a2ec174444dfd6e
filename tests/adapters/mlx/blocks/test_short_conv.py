"""What convolutions hold of a lane: a tree's path whatever the taps, and no more rows than their tail."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.adapters.mlx.blocks.short_conv import ConvState
from tensorfold.adapters.mlx.layouts import chain_layout, lay_out
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.slow
def test_what_a_prompt_leaves_does_not_keep_the_prompt_s_rows_alive(device: str) -> None:
    ops: RowOps[Any] = DEVICES[device]()
    count, channels = 512, 512
    state = ConvState(ops, ShortConv(channels, 4), channels)
    weight = ops.float32(np.ones((4, channels), np.float32))
    rows = ops.constant(np.ones((count, channels), np.float32))
    with measured() as grown:
        ops.host(state.run(rows, weight, None, chain_layout(0, count)))
        state.keep(tuple(range(count)))
        ops.settle([state])
    assert state.held_bytes() == 3 * channels * 4 and grown[0] <= 8 * state.held_bytes()
    ops.close()


@contextmanager
def measured() -> Iterator[list[int]]:
    """Bytes that numpy and MLX hold more at the end than at the beginning."""
    grown = [0]
    gc.collect()
    tracemalloc.start()
    before = mx.get_active_memory()
    try:
        yield grown
        gc.collect()
        grown[0] = tracemalloc.get_traced_memory()[0] + mx.get_active_memory() - before
    finally:
        tracemalloc.stop()
