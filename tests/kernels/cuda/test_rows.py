"""What decides the bits of the row kernel, and that every tiling it may take fits the card."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tensorfold.kernels.cuda.affine_rows import MOST_PAIRS, Launch, RowKernels
from tensorfold.kernels.cuda.compiler import Source
from tensorfold.kernels.cuda.driver import Device
from tensorfold.kernels.cuda.row_tilings import Cut, Matrix, Tiling, cut, expert_rows, row_bytes, shared_bytes, tiling

SHAPES = [
    (34816, 5120), (5120, 17408), (16384, 5120), (14336, 5120), (5120, 6144), (248320, 5120), (96, 5120), (10304, 2688),
    (2688, 4096), (3712, 2688), (2688, 3712), (131072, 2688), (64, 64), (1, 128),
]  # fmt: skip
# Compute capability and the most shared memory a block may ask for.
CARDS = [((9, 0), 232448), ((10, 0), 232448), ((12, 0), 101376)]


@pytest.mark.parametrize("card", CARDS, ids=lambda card: "sm_{}{}".format(*card[0]))
@pytest.mark.parametrize("bits", [4, 5, 6, 8, 16])
def test_every_row_count_of_every_shape_has_a_tiling_that_fits(card: tuple[tuple[int, int], int], bits: int) -> None:
    capability, most = card
    for outputs, inputs in SHAPES:
        matrix = Matrix(outputs, inputs, bits)
        way = cut(matrix, capability)
        for rows in range(1, 129):
            made = tiling(matrix, way, rows, most)
            assert shared_bytes(matrix, way, made, rows) + 1024 <= most
            assert made.outputs % (16 * way.blocks) == 0
            assert made.row_tiles * 8 >= min(rows, 8)


def test_a_gate_and_what_it_opens_make_half_as_many_results_of_whole_tiles() -> None:
    assert Matrix(96, 128, 4, gated=True).results == 48 and Matrix(96, 128, 4).results == 96
    with pytest.raises(ValueError, match="72 outputs of a gate and what it opens are not whole tiles of 16"):
        Matrix(72, 128, 4, gated=True)


def test_rows_of_x_fall_on_other_banks_and_stay_aligned() -> None:
    for outputs, inputs in SHAPES:
        matrix = Matrix(outputs, inputs, 4)
        assert row_bytes(matrix, cut(matrix, (9, 0))) % 128 == 16


def test_experts_of_a_nemotron_layer_fit_with_all_their_rows(tmp_path: Path) -> None:
    kernels = RowKernels(Device(132, (9, 0), 232448), tmp_path, lambda line: None)
    for matrix, each in ((Matrix(1856, 2688, 4), 8), (Matrix(2688, 1856, 4), 1)):
        way, rows = kernels.expert_cut(matrix, each), MOST_PAIRS // each
        made = kernels.expert_tiling(matrix, way, rows, MOST_PAIRS)
        room = expert_rows(matrix, made, rows, MOST_PAIRS, 132 // way.blocks)
        assert shared_bytes(matrix, way, made, room, experts=True) <= 232448 - 6 * 1024
        assert (made.row_tiles, made.output_tiles) == (1, 1)


def test_a_block_has_room_for_the_rows_of_its_items_whoever_chose_which_expert() -> None:
    chance = np.random.default_rng(3)
    for outputs, pairs, clusters in ((1856, 256, 132), (2688, 256, 66), (64, 256, 132), (5000, 9, 132), (128, 40, 7)):
        matrix = Matrix(outputs, 512, 4)
        made = tiling(matrix, cut(matrix, (9, 0)), 1, 232448)
        each = -(-outputs // made.outputs)
        room = expert_rows(matrix, made, pairs, pairs, clusters)
        assert expert_rows(matrix, made, 1, pairs, clusters) == 1
        for _ in range(50):
            members = [1] * pairs if chance.random() < 0.3 else []
            while (left := pairs - sum(members)) > 0:
                members.append(min(left, int(chance.integers(1, 9))))
            tiles = len(members) * each
            edges = [tiles * cluster // clusters for cluster in range(clusters + 1)]
            for first, last in pairwise(edges):
                if last > first:
                    assert sum(members[first // each : (last - 1) // each + 1]) <= room


def test_more_pairs_than_a_launch_takes_are_refused(tmp_path: Path) -> None:
    kernels = RowKernels(Device(132, (9, 0), 232448), tmp_path, lambda line: None)
    with pytest.raises(ValueError, match="257 pairs"):
        kernels.experts(Matrix(64, 64, 4), 1, MOST_PAIRS + 1)


def test_a_matrix_that_no_kernel_knows_is_refused_with_its_numbers() -> None:
    with pytest.raises(ValueError, match="7 bits"):
        Matrix(64, 64, 7)
    with pytest.raises(ValueError, match="64 x 100"):
        Matrix(64, 100, 4)


def test_a_block_too_small_for_one_row_is_refused() -> None:
    matrix = Matrix(64, 1 << 20, 16)
    with pytest.raises(ValueError, match="do not fit"):
        tiling(matrix, cut(matrix, (9, 0)), 1, 101376)


@pytest.mark.parametrize("wide", [False, True])
def test_rows_that_no_block_holds_together_are_launched_some_at_a_time(
    wide: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(108, (8, 0), 166912)
    kernels, matrix = RowKernels(device, tmp_path, lambda line: None), Matrix(5120, 17408, 4)
    asked: list[Source] = []
    ran: list[tuple[int, ...]] = []

    def prepare(matrix: Matrix, way: Cut, made: Tiling, rows: int, wide: bool = False) -> Launch:
        assert shared_bytes(matrix, way, made, rows) <= device.shared_bytes - 1024
        return lambda weights, x, y, stream, early: ran.append((rows, weights, x, y, stream, early))

    monkeypatch.setattr(kernels, "prepare", prepare)
    monkeypatch.setattr(kernels._compiling, "ask", asked.append)
    kernels.expect_rows(matrix, 10, wide)
    kernels.rows(matrix, 10, wide)(1 << 20, 1 << 30, 1 << 40, 7, False)
    each = (17408 * 2, 5120 * (4 if wide else 2))
    starts = (0, 4, 8)
    assert ran == [
        (count, 1 << 20, (1 << 30) + start * each[0], (1 << 40) + start * each[1], 7, False)
        for start, count in zip(starts, (4, 4, 2), strict=True)
    ]
    assert asked and {source.file for source in asked} == {"affine_rows.cu"}


def test_one_row_that_no_block_holds_is_refused(tmp_path: Path) -> None:
    kernels = RowKernels(Device(84, (8, 6), 101376), tmp_path, lambda line: None)
    with pytest.raises(ValueError, match="do not fit"):
        kernels.rows(Matrix(64, 1 << 17, 4), 3)
