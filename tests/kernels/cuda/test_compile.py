"""Every CUDA C++ kernel compiles through NVRTC, for cards that are not here, and what was compiled is kept."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tensorfold.kernels.cuda import compiler, kept_code
from tensorfold.kernels.cuda.affine_rows import RowKernels
from tensorfold.kernels.cuda.compiler import CompilerError, CompilerMissingError, Compiling, Source, compile_source
from tensorfold.kernels.cuda.driver import Device
from tensorfold.kernels.cuda.row_tilings import Matrix, cut, few_rows, tiling

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
@pytest.mark.parametrize("shape", [(34816, 5120), (5120, 6144), (10304, 2688), (2688, 1856)])
def test_the_row_kernel_compiles_with_its_rows_in_registers(shape: tuple[int, int], tmp_path: Path) -> None:
    device = CARDS[1]
    kernels, matrix = RowKernels(device, tmp_path, silent), Matrix(*shape, 4)
    for rows in (1, 8):
        made = few_rows(matrix, cut(matrix, device.capability).parts, rows, device.multiprocessors)
        assert compile_source(kernels.source(matrix, *made, False), tmp_path, silent)[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(34816, 5120), (5120, 17408)])
def test_the_row_kernel_compiles_with_some_of_its_rows_in_registers(shape: tuple[int, int], tmp_path: Path) -> None:
    kernels, matrix = RowKernels(CARDS[1], tmp_path, silent), Matrix(*shape, 4)
    source = kernels.rows_source(matrix, 16)
    assert 0 < dict(source.macros)["KEPT"] < dict(source.macros)["PART"] == matrix.groups // 8
    assert compile_source(source, tmp_path, silent)[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 8, 16])
@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.architecture)
def test_the_row_kernel_compiles_with_gates(device: Device, rows: int, tmp_path: Path) -> None:
    kernels = RowKernels(device, tmp_path, silent)
    source = kernels.rows_source(Matrix(8208, 5120, 4, gated=True), rows)
    macros = dict(source.macros)
    assert (
        macros["GATED"] and not macros["WIDE"] and (macros["WN"] == 16) == (rows == 8 and device.capability == (9, 0))
    )
    assert compile_source(source, tmp_path, silent)[:4] == b"\x7fELF"


@pytest.mark.slow
@pytest.mark.parametrize("device", CARDS, ids=lambda device: device.architecture)
def test_the_row_kernel_compiles_for_grouped_experts(device: Device, tmp_path: Path) -> None:
    kernels = RowKernels(device, tmp_path, silent)
    matrix = Matrix(1856, 512, 4)
    way = kernels.expert_cut(matrix, 8)
    source = kernels.source(matrix, way, kernels.expert_tiling(matrix, way, 2, 16), False, True)
    assert compile_source(source, tmp_path, silent)[:4] == b"\x7fELF"


def assembly(source: Source) -> str:
    """A source's PTX: what the compiler was told of each access."""
    nvrtc, program = compiler._nvrtc(), ctypes.c_void_p()
    options = [option.replace("sm_", "compute_").encode() for option in source.options]
    compiler._check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.text(), b"a.cu", 0, None, None))
    try:
        compiler._check(nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)))
        return compiler._read(program, "PTX").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


@pytest.mark.slow
def test_kernels_that_start_early_read_nothing_as_if_it_had_stood_since_they_started(tmp_path: Path) -> None:
    kernels, matrix = RowKernels(CARDS[1], tmp_path, silent), Matrix(1856, 2688, 4)
    sources = [kernels.experts_source(matrix, 1, 8), kernels.rows_source(matrix, 1), kernels.rows_source(matrix, 32)]
    for source in sources:
        made = assembly(source)
        assert "griddepcontrol.wait" in made
        assert "ld.global.nc" not in made, source.title


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Source]:
    """Kernels that compile at once, found by a number; 13 is refused."""
    folder = tmp_path / "sources"
    folder.mkdir()
    text = '#if N == 13\n#error no luck\n#endif\nextern "C" __global__ void add(int *y) { *y += N; }'
    (folder / "small.cu").write_text(text)
    monkeypatch.setattr(compiler, "SOURCES", folder)
    return lambda number: Source.of("small.cu", {"N": number}, "sm_90")


def counted(monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """The sources that are really compiled from here on."""
    made: list[Source] = []
    real = compiler._compile

    def compile_one(source: Source) -> tuple[bytes, str]:
        made.append(source)
        return real(source)

    monkeypatch.setattr(compiler, "_compile", compile_one)
    return made


def test_what_was_compiled_once_is_read_the_next_time(small: Callable[[int], Source], tmp_path: Path) -> None:
    lines: list[str] = []
    folder = tmp_path / "deep" / "folder"
    first = compile_source(small(6), folder, lines.append)
    again = compile_source(small(6), folder, lines.append)
    assert first == again and kept_code.is_code(first)
    assert lines == ["compiling small.cu for sm_90"]
    assert [path.suffix for path in folder.iterdir()] == [".cubin"]


def test_a_source_that_the_compiler_refuses_is_named_and_its_words_are_kept(
    small: Callable[[int], Source], tmp_path: Path
) -> None:
    with pytest.raises(CompilerError, match=r"refuses small\.cu for sm_90 \(N=13\)$") as refused:
        compile_source(small(13), tmp_path / "kept", silent)
    assert "no luck" in refused.value.log and not (tmp_path / "kept").exists()


def test_sources_compile_beside_their_caller_each_once_and_only_the_caller_tells(
    small: Callable[[int], Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, lines = counted(monkeypatch), list[tuple[str, int]]()
    compile_source(small(0), tmp_path, silent)
    several = Compiling(tmp_path, lambda line: lines.append((line, threading.get_ident())), workers=3)
    for number in (0, 1, 2, 3, 1, 4):
        several.ask(small(number))
    code = several.finish()
    assert sorted(made, key=lambda source: source.macros) == [small(number) for number in range(5)]
    assert set(code) == set(made) and len(set(code.values())) == 5
    assert {thread for _, thread in lines} == {threading.get_ident()}
    assert lines[-1][0] == "compiling 4 kernels for sm_90: 4 done"
    assert all(compile_source(small(number), tmp_path, silent) == code[small(number)] for number in range(5))
    several.ask(small(4))
    assert several.finish()[small(4)] == code[small(4)] and len(made) == 5
    several.close()


def test_what_is_kept_is_compiled_again_where_it_is_not_whole(
    small: Callable[[int], Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = compile_source(small(1), tmp_path, silent)
    (path,) = tmp_path.glob("*.cubin")
    kept = path.read_bytes()
    made = counted(monkeypatch)
    for spoiled in (kept[: len(kept) // 2], whole, b""):
        path.write_bytes(spoiled)
        several = Compiling(tmp_path, silent)
        several.ask(small(1))
        assert several.finish() == {small(1): whole}
        several.close()
        assert path.read_bytes() == kept
    assert len(made) == 3


def test_the_first_refusal_ends_the_wait_and_names_the_source(small: Callable[[int], Source], tmp_path: Path) -> None:
    several = Compiling(tmp_path, silent, workers=1)
    for number in (13, 1, 2):
        several.ask(small(number))
    with pytest.raises(CompilerError, match="N=13"):
        several.finish()
    several.close()


def test_what_a_compilation_freed_is_handed_back_behind_each_whether_it_succeeds_or_not(
    small: Callable[[int], Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handed: list[int] = []
    monkeypatch.setattr(compiler, "_give_back", lambda: handed.append(threading.get_ident()))

    def times() -> int:
        return handed.count(threading.get_ident())  # what others gave up waiting for may still compile in a thread

    compile_source(small(1), tmp_path, silent)
    assert times() == 1
    with pytest.raises(CompilerError):
        compile_source(small(13), tmp_path, silent)
    assert times() == 2
    compile_source(small(1), tmp_path, silent)  # read, not compiled
    assert times() == 2


@pytest.mark.parametrize("library", ["with", "without"])
def test_memory_is_handed_back_where_the_system_s_library_has_a_way(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    found = SimpleNamespace(malloc_trim=calls.append) if library == "with" else SimpleNamespace()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: found)
    compiler._give_back()
    assert calls == ([0] if library == "with" else [])


def test_workers_are_as_many_as_there_are_processors_and_never_a_crowd(monkeypatch: pytest.MonkeyPatch) -> None:
    for processors, workers in ((1, 1), (2, 2), (48, compiler.MOST_WORKERS)):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, count=processors: set(range(count)), raising=False)
        assert compiler.worker_count() == workers
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert compiler.worker_count() == 1


def test_a_file_that_a_source_includes_stands_in_the_place_of_its_line_and_decides_the_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiler, "SOURCES", tmp_path)
    (tmp_path / "main.cu").write_text('// a\n#include "part.cuh"\n// b\n')
    (tmp_path / "part.cuh").write_text("typedef int whole;\n")
    source = Source.of("main.cu", {}, "sm_90")
    before = source.digest()
    assert source.text() == b"// a\ntypedef int whole;\n// b\n"
    (tmp_path / "part.cuh").write_text("typedef long whole;\n")
    assert source.digest() != before


def test_other_macros_and_another_architecture_are_other_machine_code() -> None:
    digests = {
        Source.of("affine_rows.cu", {"BITS": bits}, architecture).digest()
        for bits in (4, 5)
        for architecture in ARCHITECTURES
    }
    assert len(digests) == 8
