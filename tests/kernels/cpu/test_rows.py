"""A row's bits in any call: other rows, other places, other neighbours, garbage beside it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.kernels.cpu.attention import BLOCK, BlockedAttention, Sight
from tensorfold.kernels.cpu.elementwise import gated_silu, rms_norm, rotate
from tensorfold.kernels.cpu.product import RowProduct, block_outputs, in_blocks
from tensorfold.kernels.cpu.row_steps import exact_steps, padded, row_calls
from tensorfold.kernels.cpu.workers import Workers
from tensorfold.kernels.reference.attention import attend
from tensorfold.kernels.reference.norm import rms_norm as exact_norm
from tensorfold.kernels.reference.rope import rotate as exact_rotate
from tensorfold.kernels.reference.swiglu import gated_silu as exact_gated_silu

Rows = NDArray[np.float32]
COUNTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 128)
SHAPES = ((64, 64), (96, 64), (97, 33), (5, 7), (1, 32), (192, 576), (576, 1536), (3000, 200), (64, 5000))


def noise(seed: int, *shape: int) -> Rows:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_a_product_row_is_the_same_alone_and_in_company(shape: tuple[int, int]) -> None:
    weight, rows = noise(1, *shape), noise(2, 128, shape[1])
    product = RowProduct(weight, Workers(1))
    assert product.steps
    alone = np.concatenate([product(rows[i : i + 1]) for i in range(128)])
    exact = rows.astype(np.float64) @ weight.T.astype(np.float64)
    assert np.abs(alone - exact).max() <= 1e-5 * np.abs(exact).max() * np.sqrt(shape[1])
    for count in COUNTS:
        assert np.array_equal(product(rows[:count]), alone[:count])
    turned = np.random.default_rng(3).permutation(128)
    assert np.array_equal(product(rows[turned]), alone[turned])
    garbage = rows[:16].copy()
    garbage[1::2] = np.nan
    assert np.array_equal(product(garbage)[::2], alone[:16:2])


def test_threads_share_the_work_and_change_no_bit() -> None:
    weight, rows = noise(4, 4000, 300), noise(5, 16, 300)
    workers = Workers(3)
    one, three = RowProduct(weight, Workers(1)), RowProduct(weight, workers)
    assert np.array_equal(one(rows), three(rows))
    queries, keys = noise(6, 5, 40, 32), noise(7, 5, 20, BLOCK, 32)
    sight = Sight(np.arange(40) + 1100, 0)
    alone, shared = BlockedAttention(32, Workers(1)), BlockedAttention(32, workers)
    assert np.array_equal(alone(queries, [(keys, keys)], sight), shared(queries, [(keys, keys)], sight))
    workers.close()
    assert np.array_equal(one(rows), three(rows))


def test_a_fault_in_any_thread_reaches_the_caller() -> None:
    workers = Workers(3)

    def call(start: int, stop: int) -> None:
        if start <= 5 < stop:
            raise ValueError("five")

    for size in (6, 9, 30):
        with pytest.raises(ValueError, match="five"):
            workers.share(size, call)
    seen: list[int] = []
    workers.share(7, lambda start, stop: seen.extend(range(start, stop)))
    assert sorted(seen) == list(range(7))
    workers.close()
    workers.close()


def test_blocks_stay_below_the_size_at_which_a_blas_starts_threads() -> None:
    for inputs in (7, 64, 576, 1536, 4096, 8192):
        assert 2 <= block_outputs(inputs) <= 64
        assert 16 * block_outputs(inputs) * inputs <= 1 << 18
    weight = noise(8, 97, 64)
    blocks = in_blocks(weight)
    assert np.array_equal(blocks.reshape(-1, 64)[:97], weight) and not blocks.reshape(-1, 64)[97:].any()
    assert np.shares_memory(in_blocks(noise(9, 128, 64)), in_blocks(weight)) is False
    whole = noise(9, 128, 64)
    assert np.shares_memory(in_blocks(whole), whole)


def test_sizes_whose_rows_differ_are_not_used_together() -> None:
    samples = noise(10, 16, 8)

    def by_size(rows: Rows) -> Rows:
        return rows * np.float32(2 if len(rows) == 4 else 3)

    def by_slot(rows: Rows) -> Rows:
        return rows + np.arange(len(rows), dtype=np.float32)[:, None] * np.float32(len(rows) != 8)

    def by_neighbour(rows: Rows) -> Rows:
        mixed: Rows = rows + rows.sum()
        return mixed

    assert exact_steps(lambda rows: rows, samples) == (4, 8, 16)
    assert exact_steps(by_size, samples) == (8, 16)
    assert exact_steps(by_slot, samples) == (8,)
    assert exact_steps(by_neighbour, samples) == ()


def test_calls_cover_every_row_once_in_sizes_that_may_be_used() -> None:
    for steps in ((4, 8, 16), (8,), (16,), (4, 16)):
        for count in range(1, 70):
            calls = row_calls(count, steps)
            assert [row for start, stop, _ in calls for row in range(start, stop)] == list(range(count))
            assert all(size in steps and 0 < stop - start <= size for start, stop, size in calls)
    assert row_calls(5, (4, 8, 16)) == [(0, 5, 8)]
    assert padded(noise(1, 3, 2), 4).shape == (4, 2)


@pytest.mark.parametrize("dim", (16, 64, 80, 128))
@pytest.mark.parametrize("window", (0, 50))
def test_an_attention_row_is_the_same_alone_and_in_company(dim: int, window: int) -> None:
    reader = BlockedAttention(dim, Workers(1))
    assert reader.steps
    blocks, groups, shared, start = 5, 2, 3, 200
    keys, values = noise(1, groups, blocks, BLOCK, dim), noise(2, groups, blocks, BLOCK, dim)
    queries = noise(3, groups, 40 * shared, dim) * np.float32(dim**-0.5)
    positions = np.repeat(np.arange(start, start + 40), shared)
    made = reader(queries, [(keys, values)], Sight(positions, 0, window))
    for row in range(0, 40, 3):
        # Alone a row meets fewer blocks: those its own position needs, and no later key in them.
        own = slice(row * shared, (row + 1) * shared)
        count = (start + row) // BLOCK + 1
        seen_keys, seen_values = keys[:, :count].copy(), values[:, :count].copy()
        for seen in (seen_keys, seen_values):
            seen.reshape(groups, -1, dim)[:, start + row + 1 :] = 0.0
        parts = [(seen_keys[:, :2], seen_values[:, :2]), (seen_keys[:, 2:], seen_values[:, 2:])]
        alone = reader(np.ascontiguousarray(queries[:, own]), parts, Sight(positions[own], 0, window))
        assert np.array_equal(alone, made[:, own])
    flat = [part.reshape(groups, -1, dim).swapaxes(0, 1).astype(np.float64) for part in (keys, values)]
    heads = queries.reshape(groups, 40, shared, dim).transpose(1, 0, 2, 3).reshape(40, groups * shared, dim)
    reads = [range(max(0, at + 1 - window) if window else 0, at + 1) for at in range(start, start + 40)]
    exact = attend(heads.astype(np.float64), flat[0], flat[1], [list(r) for r in reads], 1.0)
    ours = made.reshape(groups, 40, shared, dim).transpose(1, 0, 2, 3).reshape(exact.shape)
    assert np.abs(ours - exact).max() <= 1e-5


def test_blocks_behind_a_window_may_be_left_out_without_a_trace() -> None:
    reader = BlockedAttention(64, Workers(1))
    keys, values, queries = noise(1, 1, 4, BLOCK, 64), noise(2, 1, 4, BLOCK, 64), noise(3, 1, 9, 64)
    positions = np.arange(200, 209)
    whole = reader(queries, [(keys, values)], Sight(positions, 0, 60))
    late = reader(queries, [(keys[:, 2:], values[:, 2:])], Sight(positions, 2 * BLOCK, 60))
    assert np.array_equal(whole, late)


def test_elementwise_rows_are_independent_and_right() -> None:
    rows, weight = noise(1, 64, 96), noise(2, 96)
    gate, up = noise(3, 64, 50) * np.float32(4), noise(4, 64, 50)
    heads, angles = noise(5, 64, 3, 32), noise(6, 64, 12).astype(np.float64)
    cos, sin = (f(angles).astype(np.float32)[:, None] for f in (np.cos, np.sin))
    whole = (
        rms_norm(rows, weight, 1e-5),
        gated_silu(gate, up),
        rotate(heads, cos, sin, False),
        rotate(heads, cos, sin, True),
    )
    for at in (0, 13, 63):
        own = slice(at, at + 1)
        assert np.array_equal(rms_norm(rows[own], weight, 1e-5), whole[0][own])
        assert np.array_equal(gated_silu(gate[own], up[own]), whole[1][own])
        assert np.array_equal(rotate(heads[own], cos[own], sin[own], False), whole[2][own])
        assert np.array_equal(rotate(heads[own], cos[own], sin[own], True), whole[3][own])
    assert np.abs(whole[0] - exact_norm(rows.astype(np.float64), weight.astype(np.float64), 1e-5)).max() <= 1e-5
    assert np.abs(whole[1] - exact_gated_silu(gate.astype(np.float64), up.astype(np.float64))).max() <= 1e-5
    assert np.array_equal(rms_norm(rows, None, 0.0) * weight, rms_norm(rows, weight, 0.0))
    positions, frequencies = np.arange(64), np.random.default_rng(7).random(12)
    turns = positions[:, None] * frequencies
    cos, sin = (f(turns).astype(np.float32)[:, None] for f in (np.cos, np.sin))
    for interleaved in (False, True):
        exact = exact_rotate(heads.astype(np.float64), positions, frequencies, interleaved=interleaved)
        assert np.abs(rotate(heads, cos, sin, interleaved) - exact).max() <= 1e-5


def test_a_gate_far_below_zero_gives_zero_and_no_nan() -> None:
    gate = np.array([[-200.0, -90.0, 0.0, 90.0]], np.float32)
    assert np.array_equal(gated_silu(gate, np.ones_like(gate)), np.array([[0.0, 0.0, 0.0, 90.0]], np.float32))
