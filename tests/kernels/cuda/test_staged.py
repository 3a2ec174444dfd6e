"""The kernel that decodes into shared memory: the parts of K of the others, room that suffices, one tile a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorfold.kernels.cuda import affine_rows, compiler
from tensorfold.kernels.cuda.affine_rows import RowKernels
from tensorfold.kernels.cuda.compiler import CompilerMissingError, Source, compile_source
from tensorfold.kernels.cuda.driver import Device
from tensorfold.kernels.cuda.row_tilings import Matrix, cut, matrix_macros
from tensorfold.kernels.cuda.staged_rows import STAGED_PART, StagedTiling, staged_bytes, staged_tiling
from tensorfold.kernels.cuda.wide_rows import ARCHITECTURE, WideTiling

HOPPER, MOST = (9, 0), 232448
LONG = [(5120, 17408), (200, 16960), (1200, 12288), (3840, 12288), (6000, 12288), (64, 65536)]


def made_for(matrix: Matrix) -> StagedTiling:
    made = staged_tiling(matrix.outputs, matrix.groups, cut(matrix, HOPPER).parts, 132, MOST)
    assert made is not None
    return made


@pytest.mark.parametrize("shape", LONG)
def test_a_tile_is_a_cluster_s_only_one_has_the_parts_of_few_rows_and_fits(shape: tuple[int, int]) -> None:
    matrix = Matrix(*shape, 4)
    made = made_for(matrix)
    assert made.blocks == cut(matrix, HOPPER).parts
    assert 15 * 16 * made.sixteens >= matrix.outputs
    assert staged_bytes(4, made) + 2048 <= MOST
    macros = made.macros
    assert macros["N"] * made.warpgroups == 16 * made.sixteens and macros["N"] == 8 * macros["NQ"] <= 256
    # Sums of 64 rows lie where the stages were.
    assert 64 * (16 * made.sixteens + 8) * 4 <= made.stages * (made.sixteens * 2048 + 64 * 128)


def test_outputs_that_no_cluster_has_registers_for_and_parts_that_are_empty_have_no_tiling() -> None:
    assert staged_tiling(15 * 16 * 25, 272, 8, 132, MOST) is not None
    assert staged_tiling(15 * 16 * 25 + 1, 272, 8, 132, MOST) is None
    assert staged_tiling(5120, 7, 8, 132, MOST) is None
    assert staged_tiling(5120, 272, 8, 132, 99 * 1024) is None


def test_it_is_taken_from_33_rows_on_where_parts_of_k_are_long(tmp_path: Path) -> None:
    kernels = RowKernels(Device(132, HOPPER, MOST), tmp_path, lambda line: None)
    kinds = {
        (shape, rows): type(kernels.chosen(Matrix(*shape, 4), rows))
        for shape in (*LONG, (5120, 6144), (34816, 5120), (8192, 17408))
        for rows in (32, 33, 64, 128)
    }
    for shape in LONG:
        assert [kinds[shape, rows] for rows in (33, 64, 128)] == [StagedTiling] * 3
    assert kinds[(5120, 17408), 32] is WideTiling
    assert {kinds[shape, 64] for shape in ((5120, 6144), (34816, 5120), (8192, 17408))} == {WideTiling}
    assert min(Matrix(*shape, 4).groups for shape in LONG) >= 8 * STAGED_PART


def test_what_has_no_room_or_leaves_a_block_without_a_part_is_refused_before_it_is_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(affine_rows, "compile_source", lambda *_: pytest.fail("compiled"))
    kernels = RowKernels(Device(132, HOPPER, MOST), tmp_path, lambda line: None)
    long = Matrix(5120, 17408, 6)  # the form of 4 bits
    for matrix, made in ((long, made_for(Matrix(5120, 17408, 4))), (Matrix(64, 448, 4), StagedTiling(1, 1, 8, 2, 2))):
        with pytest.raises(ValueError, match="does not fit"):
            kernels.prepare_staged(matrix, made, 64)


def test_5120_outputs_are_two_warpgroups_of_176_for_each_of_15_clusters() -> None:
    assert made_for(Matrix(5120, 17408, 4)) == StagedTiling(22, 2, 8, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    "matrix", [*(Matrix(*shape, 4) for shape in LONG), Matrix(3840, 12288, 4, gated=True)], ids=str
)
def test_it_compiles_with_its_products_under_way(matrix: Matrix, tmp_path: Path) -> None:
    try:
        compiler.version()
    except CompilerMissingError as missing:
        pytest.skip(str(missing))
    lines: list[str] = []
    source = Source.of("staged_rows.cu", made_for(matrix).macros | matrix_macros(matrix, False), ARCHITECTURE)
    assert compile_source(source, tmp_path, lines.append)[:4] == b"\x7fELF"
    assert lines == [f"compiling staged_rows.cu for {ARCHITECTURE}"]
