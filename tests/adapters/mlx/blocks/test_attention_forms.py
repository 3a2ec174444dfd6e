"""Attention as Gemma has it: values from raw keys, normed values, scale one, few turning pairs, a sliding window."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.mlx.blocks.key_values_cpu import CpuKeyValues
from tensorfold.adapters.mlx.layouts import lay_out
from tensorfold.domain.families.ops import Attention, Norm, Rope
from tensorfold.domain.families.rope import inverse_frequencies
from tensorfold.domain.windows import Window, chain
from tensorfold.kernels.reference.attention import attend
from tensorfold.kernels.reference.linear import linear
from tensorfold.kernels.reference.norm import rms_norm
from tensorfold.kernels.reference.rope import rotate
from tests.adapters.mlx.blocks.held_op import (
    FORK,
    OneOp,
    arithmetics,
    assert_state_travels,
    assert_trees_keep_bits,
    assert_windows_keep_bits,
    rows_of,
)

Exact = NDArray[np.float64]
WIDTH, NORM = 24, Norm(1e-6)
OPS = arithmetics()
FULL = Attention(
    heads=4,
    kv_heads=1,
    head_dim=32,
    scale=1.0,
    rope=Rope(32, 1e6, "proportional", rotated=8, denominator=32),
    q_norm=NORM,
    k_norm=NORM,
    v_norm=Norm(1e-6, weight=False),
    values_from_keys=True,
)


def sliding(window: int) -> Attention:
    return Attention(
        heads=4,
        kv_heads=2,
        head_dim=16,
        scale=1.0,
        rope=Rope(16, 1e4),
        window=window,
        q_norm=NORM,
        k_norm=NORM,
        v_norm=Norm(1e-6, weight=False),
    )


PLANS = {"full": FULL, "short": sliding(9), "block": sliding(64), "long": sliding(100)}


def reference(one: OneOp, op: Attention, rows: Exact, positions: list[int], reads: list[list[int]]) -> Exact:
    """Outputs of rows at `positions`, each of which reads the rows of `reads` that its window still holds."""
    at, count = np.array(positions), len(rows)
    queries = linear(rows, one.exact("q")).reshape(count, op.heads, -1)
    raw = linear(rows, one.exact("k")).reshape(count, op.kv_heads, -1)
    values = raw if op.values_from_keys else linear(rows, one.exact("v")).reshape(raw.shape)
    assert op.rope is not None
    frequencies = inverse_frequencies(op.rope)
    queries = rotate(rms_norm(queries, one.exact("q_norm"), NORM.eps), at, frequencies)
    keys = rotate(rms_norm(raw, one.exact("k_norm"), NORM.eps), at, frequencies)
    seen = [
        [past for past in read if not op.window or positions[past] > positions[row] - op.window]
        for row, read in enumerate(reads)
    ]
    mixed = attend(queries, keys, rms_norm(values, None, NORM.eps), seen, op.scale)
    return linear(mixed.reshape(count, -1), one.exact("out"))


def chained(one: OneOp, op: Attention, rows: Exact) -> Exact:
    count = len(rows)
    return reference(one, op, rows, list(range(count)), [list(range(row + 1)) for row in range(count)])


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize("form", sorted(PLANS))
def test_rows_stay_near_the_reference_far_past_the_window(name: str, form: str) -> None:
    op = PLANS[form]
    one = OneOp(OPS[name], op, WIDTH)
    rows = rows_of(3, 230, WIDTH)
    lane, made = one.open(), []
    for start, stop in ((0, 70), (70, 86), (86, 87), (87, 200), (200, 213), (213, 230)):
        made.append(one.run((lane, rows[start:stop], chain(0, [0] * (stop - start - 1)))))
        lane.keep(range(stop - start))
    wanted = chained(one, op, rows.astype(np.float64))
    assert np.abs(np.concatenate(made) - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize("name", sorted(OPS))
@pytest.mark.parametrize(("form", "past"), [("short", 5), ("short", 62), ("block", 127), ("long", 190), ("full", 61)])
def test_a_tree_reads_its_own_branch_past_the_window(name: str, form: str, past: int) -> None:
    op = PLANS[form]
    one = OneOp(OPS[name], op, WIDTH)
    rows = rows_of(4, past + len(FORK), WIDTH)
    lane = one.open()
    one.run((lane, rows[:past], chain(0, [0] * (past - 1))))
    lane.keep(range(past))
    made = one.run((lane, rows[past:], FORK))
    layout = lay_out(FORK, past)
    reads = [[*range(past), *(past + step for step in FORK.path_to(row))] for row in range(len(FORK))]
    positions = [*range(past), *layout.positions.tolist()]
    every = [list(range(row + 1)) for row in range(past)] + reads
    wanted = reference(one, op, rows.astype(np.float64), positions, every)[past:]
    assert np.abs(made - wanted).max() <= 1e-5 * np.abs(wanted).max()


@pytest.mark.parametrize(("form", "past"), [("short", 3), ("short", 60), ("block", 125), ("long", 190), ("full", 60)])
@pytest.mark.slow
def test_windows_trees_and_copies_keep_every_bit_past_the_window(form: str, past: int) -> None:
    one = OneOp(OPS["rows"], PLANS[form], WIDTH)
    assert_windows_keep_bits(one, past)
    assert_trees_keep_bits(one, past)
    assert_state_travels(one, past)


def test_a_ring_that_loses_what_a_rejected_row_wrote_over_is_noticed() -> None:
    """A ring of exactly the window's slots: provisional rows take the places of the oldest keys."""
    write = CpuKeyValues._write

    def over_the_oldest(state: CpuKeyValues, keys: Any, values: Any) -> None:
        write(state, keys, values)
        oldest = max(0, state.length - 9 - state._first)
        state._keys[:, oldest : oldest + len(keys)] = 0.0

    with mock.patch.object(CpuKeyValues, "_write", over_the_oldest), pytest.raises(AssertionError):
        assert_windows_keep_bits(OneOp(OPS["rows"], PLANS["short"], WIDTH), 20)


def test_a_row_reads_nothing_behind_its_own_window() -> None:
    one = OneOp(OPS["rows"], sliding(9), WIDTH)
    rows = rows_of(5, 40, WIDTH)
    moved = rows.copy()
    moved[:20] = 1e3 * rows_of(6, 20, WIDTH)

    def last(given: NDArray[np.float32], window: Window) -> NDArray[np.float32]:
        lane = one.open()
        one.run((lane, given[:26], chain(0, [0] * 25)))
        lane.keep(range(26))
        return one.run((lane, given[26:], window))

    wide = chain(0, [0] * 13)
    assert np.array_equal(last(rows, wide)[2:], last(moved, wide)[2:])
    assert not np.array_equal(last(rows, wide)[:2], last(moved, wide)[:2])
