"""The folder of snapshots on Linux and macOS: private modes, no links followed, files that appear whole.

A file is written under another name, synced and renamed, so its own name leads to the old bytes or to all of the new
ones, whenever the process ends. What a write that was cut short left behind is removed by whoever opens the folder
next, unless its writer still lives. Knows nothing of what the bytes mean.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tensorfold.adapters.filesystem.private_folders import create_private

_FILE_MODE = 0o600
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NAME = re.compile(r"([0-9a-f]{32})\.safetensors")
_PARTIAL = re.compile(r"[0-9a-f]{32}\.[0-9]{1,10}\.partial\.safetensors")
_FREE = 256 << 20
"""Bytes that a write leaves free, so that a snapshot is never what fills a disk."""


@dataclass(frozen=True, slots=True)
class Found:
    """A file of the folder: its key, bytes, and when it was last written or touched, in nanoseconds."""

    key: str
    size: int
    touched: int


class SnapshotFolder:
    """Files by key, 32 hexadecimal digits. Calls raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._path = os.path.abspath(folder)
        self._last = 0

    def found(self) -> list[Found]:
        """Every file, the last touched first; none where the folder is missing."""
        files = []
        with suppress(FileNotFoundError), os.scandir(self._path) as names:
            for name in names:
                form = _NAME.fullmatch(name.name)
                with suppress(FileNotFoundError):
                    known = name.stat(follow_symlinks=False)
                    if form is not None and stat.S_ISREG(known.st_mode):
                        files.append(Found(form[1], known.st_size, known.st_mtime_ns))
        return sorted(files, key=lambda file: (-file.touched, file.key))

    @contextmanager
    def reading(self, key: str) -> Iterator[tuple[int, int]]:
        """A file's descriptor and size."""
        file = os.open(self._file(key), os.O_RDONLY | _SAFE)
        try:
            known = os.fstat(file)
            if not stat.S_ISREG(known.st_mode):
                raise OSError(errno.EINVAL, "not a plain file")
            yield file, known.st_size
        finally:
            os.close(file)

    def write(self, key: str, size: int, data: Iterable[bytes]) -> None:
        """Make a file of `size` bytes, or nothing."""
        create_private(self._path)
        room = os.statvfs(self._path)
        if room.f_bavail * room.f_frsize < size + _FREE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        beside = os.path.join(self._path, f"{key}.{os.getpid()}.partial.safetensors")
        with suppress(FileNotFoundError):
            os.unlink(beside)
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, _FILE_MODE)
        try:
            try:
                os.fchmod(file, _FILE_MODE)
                # Held until the process ends or closes it: what nobody holds was left behind.
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for piece in data:
                    _write_all(file, piece)
                _sync(file)
                os.rename(beside, self._file(key))
            finally:
                os.close(file)
        except BaseException:
            with suppress(OSError):
                os.unlink(beside)
            raise
        self.touch(key)
        self._sync_folder()

    def touch(self, key: str) -> None:
        """Make a file the last touched one; a missing one is fine."""
        self._last = max(self._last + 1, time.time_ns())
        with suppress(FileNotFoundError):
            os.utime(self._file(key), ns=(self._last, self._last), follow_symlinks=False)

    def remove(self, key: str) -> None:
        """Remove a file; a missing one is fine."""
        with suppress(FileNotFoundError):
            os.unlink(self._file(key))

    def clean(self) -> None:
        """Remove what writes that were cut short left behind."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self._path):
                if _PARTIAL.fullmatch(name):
                    with suppress(OSError):
                        self._remove_abandoned(os.path.join(self._path, name))

    def _remove_abandoned(self, path: str) -> None:
        file = os.open(path, os.O_RDONLY | _SAFE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)
        finally:
            os.close(file)

    def _file(self, key: str) -> str:
        return os.path.join(self._path, f"{key}.safetensors")

    def _sync_folder(self) -> None:
        with suppress(OSError):  # Not every file system has such a call; the file itself is synced.
            folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _sync(file: int) -> None:
    """To the disk itself: a Mac's fsync stops at the disk's own cache, unless it is asked for more."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):
            fcntl.fcntl(file, full)
            return
    os.fsync(file)
