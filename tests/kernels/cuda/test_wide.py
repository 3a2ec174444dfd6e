"""The warpgroup kernel's tilings: the parts of K of the few-row kernel, memory that suffices, products under way."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tensorfold.kernels.cuda import affine_rows, compiler
from tensorfold.kernels.cuda.affine_rows import MOST_PAIRS, RowKernels
from tensorfold.kernels.cuda.compiler import CompilerMissingError, Source, compile_source
from tensorfold.kernels.cuda.driver import Device
from tensorfold.kernels.cuda.row_tilings import (
    MANY,
    Matrix,
    cut,
    expert_rows,
    few_rows,
    matrix_macros,
    middle_rows,
    shared_bytes,
    tiling,
)
from tensorfold.kernels.cuda.wide_rows import ARCHITECTURE, STATIC, WideTiling, block_groups, wide_bytes, wide_tiling

HOPPER, MOST = (9, 0), 232448
SHAPES = [
    (34816, 5120), (5120, 17408), (16384, 5120), (14336, 5120), (5120, 6144), (248320, 5120), (96, 5120), (10304, 2688),
    (2688, 4096), (3712, 2688), (131072, 2688), (64, 64), (1, 128),
]  # fmt: skip


def many(matrix: Matrix, rows: int) -> WideTiling:
    made = wide_tiling(matrix.outputs, matrix.groups, cut(matrix, HOPPER).parts, rows, MOST)
    assert made is not None
    return made


@pytest.mark.parametrize("rows", [MANY, 32, 33, 64, 65, 128])
def test_many_rows_have_the_parts_of_few_and_fit(rows: int) -> None:
    for outputs, inputs in SHAPES:
        matrix = Matrix(outputs, inputs, 4)
        made = many(matrix, rows)
        assert made.blocks * made.columns == cut(matrix, HOPPER).parts
        assert wide_bytes(matrix.groups, 4, made) + STATIC <= MOST
        assert block_groups(matrix.groups, made) * made.blocks >= matrix.groups


@pytest.mark.parametrize("rows", range(1, 9))
def test_few_rows_have_the_parts_of_many_however_they_share_them_out(rows: int) -> None:
    for outputs, inputs in (*SHAPES, (16384, 2560)):
        matrix = Matrix(outputs, inputs, 4)
        parts = cut(matrix, HOPPER).parts
        way, made = few_rows(matrix, parts, rows, 132)
        assert way.parts == parts and made.outputs % (16 * way.blocks) == 0
        assert shared_bytes(matrix, way, made, rows) + 1024 <= MOST
        part = -(-matrix.groups // parts)
        assert made.kept in ((0, 8) if 12 < part <= 40 else (0, part, -(-part // 2)))


def test_rows_wait_less_for_x_by_clusters_of_eight_where_outputs_are_few_enough_to_notice() -> None:
    ways = {
        (outputs, rows): few_rows(Matrix(outputs, 5120, 4), 8, rows, 132)[0].blocks
        for outputs in (16384, 34816, 248320)
        for rows in (1, 2, 3, 8)
    }
    assert [ways[34816, rows] for rows in (1, 2, 3, 8)] == [1, 1, 8, 8]
    assert [ways[16384, rows] for rows in (2, 3)] == [1, 8] and [ways[248320, rows] for rows in (2, 3)] == [1, 2]


def test_little_is_asked_for_before_x_on_the_card_where_that_was_faster(tmp_path: Path) -> None:
    kernels = RowKernels(Device(132, HOPPER, MOST), tmp_path, lambda line: None)
    for outputs, inputs in SHAPES:
        for rows in range(1, MANY):
            made = kernels.chosen(Matrix(outputs, inputs, 4), rows)
            assert isinstance(made, tuple) and made[1].early == 1 and made[1].behind == (rows > 8)
    other = RowKernels(Device(148, (10, 0), MOST), tmp_path, lambda line: None)
    for elsewhere, bits in ((kernels, 8), (other, 4)):
        made = elsewhere.chosen(Matrix(5120, 6144, bits), 8)
        assert isinstance(made, tuple) and (made[1].early, made[1].behind) == (0, False)


def test_16_rows_have_the_parts_of_many_however_they_share_them_out(tmp_path: Path) -> None:
    kernels = RowKernels(Device(132, HOPPER, MOST), tmp_path, lambda line: None)
    near = [(16384, 2560), (14336, 4736), (5120, 16960), (8192, 17408), (8193, 17408), (8192, 5120)]
    for outputs, inputs in (*SHAPES, *near):
        matrix = Matrix(outputs, inputs, 4)
        whole = cut(matrix, HOPPER)
        own = middle_rows(matrix, whole.parts)
        for rows in range(9, MANY):
            made = kernels.chosen(matrix, rows)
            way, made_of = own or (whole, tiling(matrix, whole, rows, MOST))
            assert made == (way, replace(made_of, early=1, behind=True)) and isinstance(made, tuple)
            assert made[0].parts == whole.parts and made[1].outputs % (16 * made[0].blocks) == 0
            assert shared_bytes(matrix, *made, rows) + 1024 <= MOST
            assert made[1].kept < -(-matrix.groups // whole.parts)


def test_forms_of_16_rows_are_taken_by_the_shapes_and_row_counts_they_were_measured_for(tmp_path: Path) -> None:
    kernels = RowKernels(Device(132, HOPPER, MOST), tmp_path, lambda line: None)

    def kept(matrix: Matrix, rows: int) -> int:
        made = kernels.chosen(matrix, rows)
        return made[1].kept if isinstance(made, tuple) else 0

    shapes = ((34816, 5120), (16384, 5120), (248320, 5120), (5120, 17408), (5120, 6144), (16384, 2560))
    assert [kept(Matrix(*shape, 4), 16) for shape in shapes] == [3, 3, 3, 4, 0, 0]
    assert [kept(Matrix(34816, 5120, 4), rows) for rows in (8, 9, 16, 17)] == [5, 3, 3, 0]
    assert kept(Matrix(34816, 5120, 6), 16) == 0
    kernels.device = Device(132, HOPPER, 200 * 1024)
    assert kept(Matrix(34816, 5120, 4), 16) == 0


def test_64_rows_a_pass_and_a_third_warpgroup_are_taken_where_they_leave_room_for_copies() -> None:
    forms = {
        (shape, rows): (made.row_tiles, made.warpgroups)
        for shape in ((34816, 5120), (5120, 17408))
        for rows in (32, 64)
        for made in [many(Matrix(*shape, 4), rows)]
    }
    assert forms[(34816, 5120), 32] == (4, 3) and forms[(34816, 5120), 64] == (8, 2)
    assert forms[(5120, 17408), 32] == forms[(5120, 17408), 64] == (4, 2)


def test_rows_that_no_block_has_room_for_have_no_wide_tiling() -> None:
    assert wide_tiling(4096, 1 << 14, 8, 32, MOST) is None


def test_experts_cut_k_in_as_few_parts_as_the_rows_of_a_full_launch_have_room_for(tmp_path: Path) -> None:
    kernels = RowKernels(Device(132, HOPPER, MOST), tmp_path, lambda line: None)
    for shape, each, parts in (
        ((1856, 2688), 8, 2), ((2688, 1856), 1, 2), ((28672, 4096), 2, 8), ((4096, 8192), 8, 4), ((4096, 1536), 1, 2),
    ):  # fmt: skip
        matrix = Matrix(*shape, 4)
        way = kernels.expert_cut(matrix, each)
        assert way.parts == parts
        for pairs in (8, 64, MOST_PAIRS):
            made = kernels.expert_tiling(matrix, way, pairs // each, pairs)
            room = expert_rows(matrix, made, pairs // each, pairs, 132 // way.blocks)
            assert shared_bytes(matrix, way, made, room, experts=True) <= MOST


@pytest.mark.slow
@pytest.mark.parametrize(
    "matrix",
    [Matrix(34816, 5120, 4, gated=True), Matrix(5120, 17408, 4), Matrix(10304, 2688, 4)],
    ids=lambda matrix: f"{matrix.outputs}-{matrix.inputs}",
)
def test_the_warpgroup_kernel_compiles_with_its_products_under_way(matrix: Matrix, tmp_path: Path) -> None:
    try:
        compiler.version()
    except CompilerMissingError as missing:
        pytest.skip(str(missing))
    lines: list[str] = []
    for rows in (32, 64):
        source = Source.of("wide_rows.cu", many(matrix, rows).macros | matrix_macros(matrix, False), ARCHITECTURE)
        assert compile_source(source, tmp_path, lines.append)[:4] == b"\x7fELF"
    assert {line.split(":")[0] for line in lines} == {f"compiling wide_rows.cu for {ARCHITECTURE}"}


def test_what_is_expected_is_what_a_launch_compiles_and_each_launch_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, loaded = list[Source](), list[Source]()

    class Function:
        def __init__(self, code: bytes, name: str, shared: int) -> None:
            loaded.append(asked[int(code)])

        def clusters_at_once(self, threads: int, cluster: int, shared: int) -> int:
            return 15 * 8 // cluster

    class Compiled:
        def ask(self, source: Source) -> None:
            if source not in asked:
                asked.append(source)

        def finish(self) -> dict[Source, bytes]:
            return {source: str(at).encode() for at, source in enumerate(asked)}

    monkeypatch.setattr(affine_rows, "Function", Function)
    monkeypatch.setattr(affine_rows, "Compiling", lambda folder, progress: Compiled())
    monkeypatch.setattr(affine_rows, "compile_source", lambda *_: pytest.fail("compiled behind the load"))
    kernels = RowKernels(Device(132, HOPPER, MOST), tmp_path, lambda line: None)
    counts = (*range(1, 17), 24, 32, 40, 64, 128)
    for outputs, inputs in SHAPES:
        for rows in counts:
            kernels.expect_rows(Matrix(outputs, inputs, 4), rows, outputs > 100_000)
    for rows in (1, 8, 32):
        kernels.expect_experts(Matrix(1856, 2688, 4), rows, 8 * rows)
        kernels.expect_experts(Matrix(2688, 1856, 4), 8 * rows, 8 * rows, True)
    kernels.make_expected()
    assert set(loaded) == set(asked)
    assert {source.file for source in asked} == {"affine_rows.cu", "wide_rows.cu", "staged_rows.cu"}
    made = len(loaded)
    for outputs, inputs in SHAPES:
        for rows in counts:
            kernels.rows(Matrix(outputs, inputs, 4), rows, outputs > 100_000)
    assert kernels.rows(Matrix(5120, 6144, 4), 8) is kernels.rows(Matrix(5120, 6144, 4), 8)
    assert len(loaded) == made
