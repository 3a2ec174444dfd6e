"""A record's folder on Linux and macOS: private modes, no links followed, one lock, writes that reach the disk.

Every name is looked up in the folder that was opened, by its descriptor, so a folder swapped for another is noticed and
never written. Calls that only look (`present`, `entries`, `read`) change nothing: no mode, no time of change, no lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tensorfold.adapters.filesystem.private_folders import create_private
from tensorfold.adapters.filesystem.record_files import Entry
from tensorfold.adapters.filesystem.record_format import LOCK

_FILE_MODE = 0o600
_OTHERS = 0o077
_SAFE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""For every file: no link is followed, no child inherits it, and a pipe in a file's place keeps nobody waiting."""
_NEW = ".new"
_UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS)


class PosixRecordFiles:
    """RecordFiles of one folder; its own path may lead over links, no name inside it may be one."""

    def __init__(self, folder: Path) -> None:
        self._path = os.path.abspath(folder)
        self._folder: int | None = None
        self._locked: int | None = None

    def create_folder(self) -> None:
        """Make the folder, and the folders above it that are missing, with mode 0700, whatever the umask."""
        for path in create_private(self._path):
            with suppress(OSError):  # A folder that may not be read cannot be synced; the record's own always is.
                _sync_folder_at(os.path.dirname(path))

    def present(self) -> bool:
        """Whether the path still leads to the folder that was opened, and the lock in it is the one that is held."""
        if self._folder is None:
            return os.path.isdir(self._path)
        try:
            if not os.path.samestat(os.stat(self._path), os.fstat(self._folder)):
                return False
            return self._locked is None or self._is_lock(self._locked)
        except OSError:
            return False

    def replaced(self) -> bool:
        """Whether the path leads to another folder, or the name of the lock to another file than the one held."""
        if self._folder is None:
            return False
        with suppress(FileNotFoundError):
            if not os.path.samestat(os.stat(self._path), os.fstat(self._folder)):
                return True
        with suppress(FileNotFoundError):
            return self._locked is not None and not os.path.samestat(self._named_lock(), os.fstat(self._locked))
        return False

    def entries(self) -> list[Entry]:
        """What lies in the folder; names that vanish while it is read are left out."""
        found = []
        with os.scandir(self._opened()) as names:
            for name in names:
                with suppress(FileNotFoundError):
                    known = name.stat(follow_symlinks=False)
                    found.append(Entry(name.name, known.st_size, stat.S_ISREG(known.st_mode)))
        return found

    def read(self, name: str, most: int) -> bytes:
        """At most the first `most` bytes of a file."""
        with self._file(name, os.O_RDONLY) as file:
            parts: list[bytes] = []
            while most > 0 and (part := os.read(file, most)):
                parts.append(part)
                most -= len(part)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    def create(self, name: str) -> None:
        """A new empty file of mode 0600."""
        os.close(self._made(name))

    def append(self, name: str, data: bytes) -> int:
        """One write at the end; a file that others could read is made private first."""
        with self._file(name, os.O_WRONLY | os.O_APPEND) as file:
            if stat.S_IMODE(os.fstat(file).st_mode) & _OTHERS:
                os.fchmod(file, _FILE_MODE)
            return os.write(file, data)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to `size` bytes; a shorter one stays as it is."""
        with self._file(name, os.O_WRONLY) as file:
            if os.fstat(file).st_size > size:
                os.ftruncate(file, size)

    def sync(self, name: str) -> None:
        """Return when the file's content has reached the disk."""
        with self._file(name, os.O_WRONLY) as file:
            _sync(file)

    def sync_folder(self) -> None:
        """Return when the folder's names have reached the disk; some file systems offer no such call."""
        try:
            _sync(self._opened())
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise

    def replace(self, name: str, data: bytes) -> None:
        """Write beside, sync, rename. What an earlier attempt left beside is overwritten."""
        folder, beside = self._opened(), name + _NEW
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
        file = self._made(beside)
        try:
            try:
                while data:
                    data = data[os.write(file, data) :]
                _sync(file)
            finally:
                os.close(file)
            os.rename(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(beside, dir_fd=folder)
            raise
        self.sync_folder()

    def remove(self, name: str) -> None:
        """Remove a file or a link to one."""
        os.unlink(name, dir_fd=self._opened())

    def lock(self) -> bool:
        """Take the lock; False when another process has it, also one that made the file anew meanwhile."""
        if self._locked is not None:
            return True
        file = self._lock_file()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            taken = self._is_lock(file)
        except BlockingIOError:
            taken = False
        except OSError:
            os.close(file)
            raise
        if taken:
            self._locked = file
        else:
            os.close(file)
        return taken

    def unlock(self) -> None:
        """Give the lock back, and let go of the folder."""
        for held in (self._locked, self._folder):
            if held is not None:
                os.close(held)
        self._locked = self._folder = None

    def _opened(self) -> int:
        if self._folder is None:
            self._folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._folder

    @contextmanager
    def _file(self, name: str, flags: int) -> Iterator[int]:
        file = os.open(name, flags | _SAFE, dir_fd=self._opened())
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise OSError(errno.EINVAL, "not a plain file", name)
            yield file
        except BaseException:
            with suppress(OSError):
                os.close(file)
            raise
        os.close(file)  # A network's disk may first tell here that a write was lost.

    def _made(self, name: str) -> int:
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, _FILE_MODE, dir_fd=self._opened())
        try:
            os.fchmod(file, _FILE_MODE)
        except OSError:
            os.close(file)
            raise
        return file

    def _lock_file(self) -> int:
        with suppress(FileExistsError):
            return self._made(LOCK)
        file = os.open(LOCK, os.O_RDWR | _SAFE, dir_fd=self._opened())
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise OSError(errno.EINVAL, "not a plain file", LOCK)
        return file

    def _is_lock(self, file: int) -> bool:
        try:
            return os.path.samestat(self._named_lock(), os.fstat(file))
        except FileNotFoundError:
            return False

    def _named_lock(self) -> os.stat_result:
        return os.stat(LOCK, dir_fd=self._opened(), follow_symlinks=False)


def _sync(file: int) -> None:
    """To the disk itself: a Mac's fsync stops at the disk's own cache, unless it is asked for more."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with suppress(OSError):  # Not every file system has it; fsync then tells what is wrong.
            fcntl.fcntl(file, full)
            return
    os.fsync(file)


def _sync_folder_at(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _sync(folder)
    finally:
        os.close(folder)
