"""CUDA C++ to machine code through NVRTC, the compiler that comes as a wheel; needs no toolkit, no headers and no GPU.

What is compiled is kept (`kept_code.py`) under the hash of everything that decides it. Knows no kernel and no device;
reports through a callback, from the caller's thread alone.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tensorfold.kernels.cuda import kept_code

Progress = Callable[[str], None]
SOURCES = Path(__file__).parent
SLOW = "Potential Performance Loss"  # how the compiler's log marks products that it had to make wait for each other
MOST_WORKERS = 16
"""Threads that compile at most: each takes some 30 MiB and a core, and there are rarely more than 40 sources."""
REPORT_SECONDS = 1.0
_INCLUDE = b'#include "'


class CompilerMissingError(RuntimeError):
    """No NVRTC library was found."""


class CompilerError(RuntimeError):
    """NVRTC refused a source, which the text names; `log` is what it said."""

    def __init__(self, sentence: str, log: str = "") -> None:
        super().__init__(sentence)
        self.log = log


def library_paths() -> list[Path]:
    """Every NVRTC library among the installed wheels, the newest version first."""
    spec = importlib.util.find_spec("nvidia")
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    found = {path for folder in folders for path in Path(folder).glob("**/libnvrtc.so.*") if ".alt." not in path.name}
    return sorted(found, key=lambda path: path.name, reverse=True)


@cache
def _nvrtc() -> ctypes.CDLL:
    for name in (*map(str, library_paths()), "libnvrtc.so.13", "libnvrtc.so.12"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise CompilerMissingError("no NVRTC library is installed; it comes with the package nvidia-cuda-nvrtc")


def _check(code: int) -> None:
    if code:
        words = _nvrtc().nvrtcGetErrorString
        words.restype = ctypes.c_char_p
        raise CompilerError(f"NVRTC answered: {words(code).decode()}")


@cache
def version() -> tuple[int, int]:
    """NVRTC's version."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


@dataclass(frozen=True, slots=True)
class Source:
    """A file of this folder with its macros, for one architecture such as `sm_90`."""

    file: str
    macros: tuple[tuple[str, int], ...]
    architecture: str

    @classmethod
    def of(cls, file: str, macros: Mapping[str, int], architecture: str) -> Source:
        """The source with its macros in a settled order."""
        return cls(file, tuple(sorted(macros.items())), architecture)

    @property
    def options(self) -> tuple[str, ...]:
        """What NVRTC is told."""
        macros = (f"-D{name}={value}" for name, value in self.macros)
        return (f"--gpu-architecture={self.architecture}", "-std=c++17", "-default-device", *macros)

    @property
    def title(self) -> str:
        """Its file, architecture and macros, for a sentence."""
        macros = " ".join(f"{name}={value}" for name, value in self.macros)
        return f"{self.file} for {self.architecture}" + (f" ({macros})" if macros else "")

    def text(self) -> bytes:
        """The file, with the bytes of each file of this folder that it includes in the line's place."""
        lines = (SOURCES / self.file).read_bytes().splitlines(keepends=True)
        named = (line.strip()[len(_INCLUDE) : -1].decode() if line.startswith(_INCLUDE) else "" for line in lines)
        return b"".join(
            (SOURCES / name).read_bytes() if name else line for name, line in zip(named, lines, strict=True)
        )

    def digest(self) -> str:
        """A hash of all that decides the machine code."""
        told = "\0".join((*self.options, f"{version()}"))
        return hashlib.sha256(told.encode() + b"\0" + self.text()).hexdigest()


def compile_source(source: Source, folder: Path, progress: Progress) -> bytes:
    """The cubin of `source`, from `folder` if a whole one is there, else compiled and put there.

    Raises `CompilerMissingError` without an NVRTC library and `CompilerError` where it refuses the source.
    """
    digest = source.digest()
    found = kept_code.read(folder, digest)
    if found is not None:
        return found
    progress(f"compiling {source.file} for {source.architecture}")
    cubin, log = _compile(source)
    _tell_slow(source, log, progress)
    kept_code.write(folder, digest, cubin)
    return cubin


class Compiling:
    """Sources that compile in threads while their caller does other work; each is compiled once.

    What a `folder` keeps is not compiled. `close` gives up what has not begun.
    """

    def __init__(self, folder: Path, progress: Progress, workers: int | None = None) -> None:
        self._folder, self._progress = folder, progress
        self._pool = ThreadPoolExecutor(workers or worker_count(), "compile")
        self._pending: dict[Source, Future[tuple[bytes, str]]] = {}
        self._made: dict[Source, bytes] = {}

    def ask(self, source: Source) -> None:
        """Have a source compiled; returns at once. Raises as `compile_source` for what can be told at once."""
        if source in self._made or source in self._pending:
            return
        found = kept_code.read(self._folder, source.digest())
        if found is None:
            self._pending[source] = self._pool.submit(_compile, source)
        else:
            self._made[source] = found

    def finish(self) -> Mapping[Source, bytes]:
        """Wait for every source that was asked for; the cubins. Raises as `compile_source`, and waits for no other."""
        waiting, count = set(self._pending.values()), len(self._pending)
        if count:
            names = ", ".join(sorted({source.architecture for source in self._pending}))
            what = f"compiling {count} kernels for {names}" if count > 1 else f"compiling a kernel for {names}"
            self._report(what, waiting)
        for source, made in self._pending.items():
            cubin, log = made.result()
            _tell_slow(source, log, self._progress)
            kept_code.write(self._folder, source.digest(), cubin)
            self._made[source] = cubin
        self._pending.clear()
        return self._made

    def close(self) -> None:
        """Give up what has not begun; what runs ends by itself."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _report(self, what: str, waiting: set[Future[tuple[bytes, str]]]) -> None:
        """Lines about how many are done, at most one for each fourth of them. Raises the first error."""
        count, told = len(waiting), -1
        while True:
            done = sum(each.done() for each in waiting)
            if told < 0 or done == count or done - told >= max(1, count // 4):
                self._progress(f"{what}: {done} done")
                told = done
            if done == count:
                return
            for each in wait(waiting, REPORT_SECONDS, FIRST_EXCEPTION).done:
                each.result()


def worker_count() -> int:
    """Threads that compile: as many as this process may run on, at most MOST_WORKERS."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_WORKERS, mine))


def _tell_slow(source: Source, log: str, progress: Progress) -> None:
    for line in log.splitlines():
        if SLOW in line:
            progress(f"{source.file}: {line.strip()}")


def _compile(source: Source) -> tuple[bytes, str]:
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    name = source.file.encode()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.text(), name, 0, None, None))
    try:
        options = [option.encode() for option in source.options]
        if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
            raise CompilerError(f"NVRTC {version()[0]}.{version()[1]} refuses {source.title}", _log(program))
        return _read(program, "CUBIN"), _log(program)
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        _give_back()


def _give_back() -> None:
    """Hand freed memory back to the system, where its library has a way (glibc's).

    NVRTC frees what it took, but the heaps of a dozen threads keep some 10 MiB of it each, for nobody: a load's largest
    slot then comes on top of it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _log(program: ctypes.c_void_p) -> str:
    return _read(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    nvrtc, size = _nvrtc(), ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw
