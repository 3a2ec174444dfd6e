"""CUDA C++ to machine code through NVRTC, the compiler that comes as a wheel; needs no toolkit, no headers and no GPU.

What is compiled is kept in a folder under the hash of everything that decides it. Knows no kernel and no device; writes
nothing but that folder and reports through a callback.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Progress = Callable[[str], None]
SOURCES = Path(__file__).parent
SLOW = "Potential Performance Loss"  # how the compiler's log marks products that it had to make wait for each other


class CompilerMissingError(RuntimeError):
    """No NVRTC library was found."""


class CompilerError(RuntimeError):
    """NVRTC refused a source; the text is its log."""


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

    def text(self) -> bytes:
        """The file's bytes."""
        return (SOURCES / self.file).read_bytes()

    def digest(self) -> str:
        """A hash of all that decides the machine code."""
        told = "\0".join((*self.options, f"{version()}"))
        return hashlib.sha256(told.encode() + b"\0" + self.text()).hexdigest()


def compile_source(source: Source, folder: Path, progress: Progress) -> bytes:
    """The cubin of `source`, from `folder` if it is there, else compiled and put there.

    Raises `CompilerMissingError` without an NVRTC library and `CompilerError` with the compiler's log.
    """
    kept = folder / f"{source.digest()}.cubin"
    if kept.is_file():
        return kept.read_bytes()
    progress(f"compiling {source.file} for {source.architecture}")
    cubin, log = _compile(source)
    for line in log.splitlines():
        if SLOW in line:
            progress(f"{source.file}: {line.strip()}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
        file.write(cubin)
    os.replace(file.name, kept)
    return cubin


def _compile(source: Source) -> tuple[bytes, str]:
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    name = source.file.encode()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.text(), name, 0, None, None))
    try:
        options = [option.encode() for option in source.options]
        if nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options)):
            raise CompilerError(f"{source.file} for {source.architecture}: {_read(program, 'ProgramLog').decode()}")
        return _read(program, "CUBIN"), _read(program, "ProgramLog").rstrip(b"\0").decode()
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    nvrtc, size = _nvrtc(), ctypes.c_size_t()
    _check(getattr(nvrtc, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw
