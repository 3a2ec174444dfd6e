"""Compiles C++ into shared objects, once for each text: the cache is a private folder of the user's own.

Knows nothing of kernels. A missing compiler is an error, never a reason to pass.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.emulator.errors import EmulatorError

SHIM = Path(__file__).parent / "shim"
COMPILER = "g++"
# Contraction is one of the "expensive" optimizations. A local read before it is written holds a pattern, never a
# lucky zero.
FLAGS = (
    "-std=c++20",
    "-O1",
    "-fexpensive-optimizations",
    "-fPIC",
    "-shared",
    "-w",
    "-Werror=vla",
    "-ftrivial-auto-var-init=pattern",
)
PROCESSOR = ("-mfma", "-mf16c") if platform.machine() == "x86_64" else ()
# A kernel finds the machine's functions when it is loaded.
SYSTEM = ("-undefined", "dynamic_lookup") if platform.system() == "Darwin" else ()


def cache_folder() -> Path:
    """A folder that only this user can write: what lies in it is loaded as code."""
    folder = Path(tempfile.gettempdir()) / f"metal-on-cpu-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.lstat().st_uid != os.getuid() or folder.is_symlink():
        raise EmulatorError(f"{folder} belongs to somebody else; remove it or set TMPDIR to another folder")
    return folder


@functools.cache
def shim_digest() -> str:
    """Changes with every file of the shim."""
    text = b"".join(path.read_bytes() for path in sorted(SHIM.iterdir()))
    return hashlib.sha256(text).hexdigest()


def compiled(name: str, source: str, contract: bool) -> Path:
    """The shared object of `source`; raises `EmulatorError` with the compiler's first complaint."""
    flags = (*FLAGS, *PROCESSOR, *SYSTEM, f"-ffp-contract={'fast' if contract else 'off'}", f"-I{SHIM}")
    digest = hashlib.sha256("\0".join((source, shim_digest(), *flags)).encode()).hexdigest()[:24]
    target = cache_folder() / f"{digest}.so"
    if target.exists():
        return target
    if shutil.which(COMPILER) is None:
        raise EmulatorError(f"the Metal emulator needs {COMPILER}, which is not installed; install a C++ compiler")
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        written, made = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.so"
        written.write_text(source)
        done = subprocess.run([COMPILER, *flags, "-o", str(made), str(written)], capture_output=True, text=True)
        if done.returncode:
            complaints = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr[:400]]
            raise EmulatorError(f"{name} does not compile: {complaints[0].removeprefix(str(written))}")
        made.replace(target)
    return target


@functools.cache
def machine() -> ctypes.CDLL:
    """The part that runs threads, loaded so that kernels find it."""
    return ctypes.CDLL(str(compiled("the machine", (SHIM / "machine.cpp").read_text(), False)), mode=ctypes.RTLD_GLOBAL)


@functools.cache
def loaded(path: Path) -> ctypes.CDLL:
    """A compiled kernel."""
    machine()
    return ctypes.CDLL(str(path))
