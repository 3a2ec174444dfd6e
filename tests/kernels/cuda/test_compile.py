"""Every CUDA C++ kernel compiles through NVRTC, for cards that are not here, and what was compiled is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorfold.kernels.cuda import compiler
from tensorfold.kernels.cuda.affine_rows import Matrix, RowKernels, cut, tiling
from tensorfold.kernels.cuda.compiler import CompilerError, CompilerMissingError, Source, compile_source
from tensorfold.kernels.cuda.driver import Device

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
CARDS = [
    Device(108, (8, 0), 166912),
    Device(132, (9, 0), 232448),
    Device(148, (10, 0), 232448),
    Device(188, (12, 0), 101376),
]


def silent(line: str) -> None: ...


@pytest.fixture(scope="module", autouse=True)
def _nvrtc() -> None:
    try:
        compiler.version()
    except CompilerMissingError as missing:
        pytest.skip(str(missing))


@pytest.mark.slow
@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.architecture)
def test_the_row_kernel_compiles_for_every_width_of_code(device: Device, tmp_path: Path) -> None:
    kernels = RowKernels(device, tmp_path, silent)
    for bits in (4, 5, 6, 8, 16):
        matrix = Matrix(16384, 512, bits)  # few groups a copy: the loop over them is unrolled
        way = cut(matrix, device.capability)
        for rows in (8, 32) if bits == 4 else (8,):
            made = tiling(matrix, way, rows, device.shared_bytes)
            assert compile_source(kernels.source(matrix, way, made, False), tmp_path, silent)[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.architecture)
def test_the_row_kernel_compiles_for_grouped_experts(device: Device, tmp_path: Path) -> None:
    kernels = RowKernels(device, tmp_path, silent)
    matrix = Matrix(1856, 512, 4)
    way = cut(matrix, device.capability)
    source = kernels.source(matrix, way, kernels.expert_tiling(matrix, way, 16), False, True)
    assert compile_source(source, tmp_path, silent)[:4] == b"\x7fELF"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_packing_kernel_compiles(architecture: str, tmp_path: Path) -> None:
    source = Source.of("affine_pack.cu", {"BITS": 5}, architecture)
    assert compile_source(source, tmp_path, silent)[:4] == b"\x7fELF"


def test_what_was_compiled_once_is_read_the_next_time(tmp_path: Path) -> None:
    lines: list[str] = []
    source = Source.of("affine_pack.cu", {"BITS": 6}, "sm_90")
    first = compile_source(source, tmp_path / "deep" / "folder", lines.append)
    again = compile_source(source, tmp_path / "deep" / "folder", lines.append)
    assert first == again
    assert lines == ["compiling affine_pack.cu for sm_90"]
    assert [path.suffix for path in (tmp_path / "deep" / "folder").iterdir()] == [".cubin"]


def test_a_source_that_the_compiler_refuses_shows_its_words(tmp_path: Path) -> None:
    with pytest.raises(CompilerError, match=r"affine_pack\.cu for sm_90"):
        compile_source(Source.of("affine_pack.cu", {}, "sm_90"), tmp_path, silent)
    assert list(tmp_path.iterdir()) == []


def test_other_macros_and_another_architecture_are_other_machine_code() -> None:
    digests = {
        Source.of("affine_pack.cu", {"BITS": bits}, architecture).digest()
        for bits in (4, 5)
        for architecture in ARCHITECTURES
    }
    assert len(digests) == 8
