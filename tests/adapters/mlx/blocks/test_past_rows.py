"""Cached rows past the size of their first buffer, one for every few tokens, and along the paths of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tensorfold.adapters.mlx.blocks.past_rows import PastRows
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.domain.windows import chain, tree
from tests.adapters.mlx.blocks.one_op import DEVICES

GROUPS, WIDTH = 2, 8


@pytest.fixture(params=sorted(DEVICES))
def ops(request: Any) -> Iterator[RowOps[Any]]:
    made = DEVICES[request.param]()
    yield made
    made.close()


def drawn(count: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, GROUPS, WIDTH)).astype(np.float32)


def chain_layout(length: int, rows: int) -> Any:
    return lay_out(chain(0, [0] * (rows - 1)), length)


def seen(ops: RowOps[Any], past: PastRows[Any], path: tuple[int, ...]) -> Any:
    """The rows along a path, [rows, groups, width]."""
    parts = [ops.host(part) for part in past.along(path)]
    return np.concatenate(parts, axis=1).swapaxes(0, 1)


@pytest.mark.parametrize("capacity", (1_000, 700, 1))
def test_rows_stay_what_they_were_as_the_buffer_grows(ops: RowOps[Any], capacity: int) -> None:
    past: PastRows[Any] = PastRows(ops, (GROUPS, WIDTH), capacity)
    rows = drawn(700)
    at = 0
    for count in (1, 250, 16, 5, 128, 300):
        past.put(ops.float32(rows[at : at + count]), chain_layout(at, count))
        assert np.array_equal(seen(ops, past, tuple(range(count))), rows[: at + count])
        past.keep(tuple(range(count)))
        at += count
    assert np.array_equal(np.frombuffer(past.export()[0], np.float32).reshape(-1, GROUPS, WIDTH), rows[:700])


def test_a_tree_s_path_is_read_as_if_it_were_contiguous(ops: RowOps[Any]) -> None:
    past: PastRows[Any] = PastRows(ops, (GROUPS, WIDTH), 100)
    rows, window = drawn(14), tree(0, [1, 2, 3], [0, 0, 2])
    past.put(ops.float32(rows[:10]), chain_layout(0, 10))
    past.keep(tuple(range(10)))
    past.put(ops.float32(rows[10:]), lay_out(window, 10))
    for path in ((0, 1), (0, 2, 3)):
        assert np.array_equal(seen(ops, past, path), rows[[*range(10), *(10 + row for row in path)]])
    reached = ops.host(past.reach(np.array([[-3, -1], [3, 0]])))
    assert np.array_equal(reached, rows[[[7, 9], [13, 10]]])
    past.keep((0, 2, 3))
    past.put(ops.float32(rows[:1]), chain_layout(13, 1))
    assert np.array_equal(seen(ops, past, (0,)), rows[[*range(10), 10, 12, 13, 0]])


def test_a_row_made_by_rejected_tokens_goes_with_them(ops: RowOps[Any]) -> None:
    past: PastRows[Any] = PastRows(ops, (GROUPS, WIDTH), 100, per=4)
    rows = drawn(3)
    # Tokens 0..8: the fourth and the eighth complete a row each.
    past.put(ops.float32(rows[:2]), chain_layout(0, 9), {3: 0, 7: 1})
    past.keep(tuple(range(7)))
    assert (past.length, past.held) == (7, 1)
    assert np.array_equal(seen(ops, past, ()), rows[:1])
    past.put(ops.float32(rows[2:]), chain_layout(7, 1), {0: 0})
    past.keep((0,))
    assert np.array_equal(seen(ops, past, ()), rows[[0, 2]])


def test_an_export_of_no_rows_is_empty_and_loads(ops: RowOps[Any]) -> None:
    past: PastRows[Any] = PastRows(ops, (GROUPS, WIDTH), 100, per=4)
    past.put(ops.float32(drawn(1)[:0]), chain_layout(0, 3), {})
    past.keep((0, 1, 2))
    assert past.export() == (b"",)
    other: PastRows[Any] = PastRows(ops, (GROUPS, WIDTH), 100, per=4)
    other.load((b"",), 3)
    assert (other.length, other.held) == (3, 0)
