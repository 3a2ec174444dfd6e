"""The calls of a system over a simulated disk, so that the code that runs on real folders meets power cuts too.

It stands where a module imported `os` and `fcntl`. There is one folder, PATH, whose own name is lost like any other
until the folder above it is synced. Only what a record's folder uses is here; anything else raises AttributeError.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from unittest import mock

from tensorfold.adapters.filesystem import private_folders, record_posix
from tests.benchmarks.crash.disk import Node, SimulatedDisk

ABOVE = "/simulated"
PATH = f"{ABOVE}/record"
_WORDS = ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_CREAT", "O_EXCL", "O_APPEND", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC")

Opened = str | Node
"""What a descriptor stands for: the path of a folder, or a file."""


class SystemCalls:
    """`os` and `fcntl` for one disk."""

    LOCK_EX, LOCK_NB = 2, 4

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._open: dict[int, Opened] = {}
        self._number = 100
        self.path = SimpleNamespace(
            abspath=str,
            dirname=posixpath.dirname,
            isdir=self._is_folder,
            samestat=os.path.samestat,
        )
        for word in (*_WORDS, "O_NONBLOCK"):
            setattr(self, word, getattr(os, word))

    def mkdir(self, path: str, mode: int) -> None:
        """Only the record's folder is ever missing."""
        if self._is_folder(path):
            raise FileExistsError(errno.EEXIST, path)
        self._disk.make_folder()

    def chmod(self, path: str, mode: int) -> None:
        """Modes are not simulated."""

    def fchmod(self, file: int, mode: int) -> None:
        """Modes are not simulated."""

    def open(self, path: str, flags: int, mode: int = 0, *, dir_fd: int | None = None) -> int:
        """A folder by its path, or a file of the record's folder by its name."""
        if dir_fd is None:
            if not self._is_folder(path):
                raise FileNotFoundError(errno.ENOENT, path)
            return self._descriptor(path)
        assert self._open[dir_fd] == PATH, "names are looked up in the record's folder"
        if flags & os.O_CREAT:
            assert flags & os.O_EXCL, "a file is made only where none is"
            self._disk.create(path)
        if path not in self._disk.nodes:
            raise FileNotFoundError(errno.ENOENT, path)
        return self._descriptor(self._disk.nodes[path])

    def close(self, file: int) -> None:
        """The descriptor is free; nothing becomes durable."""
        del self._open[file]

    def read(self, file: int, most: int) -> bytes:
        """From the start; later reads find nothing more, as whole files are read at once."""
        node = self._open[file]
        assert isinstance(node, Node)
        self._open[file] = Node()
        return node.content[:most]

    def write(self, file: int, data: bytes) -> int:
        """At the end."""
        return self._disk.append(self._name(file), data)

    def ftruncate(self, file: int, size: int) -> None:
        """Cut."""
        self._disk.truncate(self._name(file), size)

    def fsync(self, file: int) -> None:
        """A file's content, a folder's names, or the record's folder as a name of the one above."""
        opened = self._open[file]
        if opened == ABOVE:
            self._disk.sync_above()
        elif opened == PATH:
            self._disk.sync_folder()
        else:
            self._disk.sync(self._name(file))

    def unlink(self, name: str, *, dir_fd: int) -> None:
        """Remove a name."""
        self._disk.remove(name)

    def rename(self, old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        """One name for another."""
        self._disk.rename(old, new)

    def stat(self, path: str, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        """Of a folder by its path, or of a file by its name."""
        if dir_fd is None:
            return _status(path)
        if path not in self._disk.nodes:
            raise FileNotFoundError(errno.ENOENT, path)
        return _status(self._disk.nodes[path])

    def fstat(self, file: int) -> os.stat_result:
        """Of what is open."""
        return _status(self._open[file])

    @contextmanager
    def scandir(self, file: int) -> Iterator[list[SimpleNamespace]]:
        """The folder's files."""
        nodes = list(self._disk.nodes.items())
        yield [SimpleNamespace(name=name, stat=lambda node=node, **_: _status(node)) for name, node in nodes]

    def flock(self, file: int, operation: int) -> None:
        """Always free."""

    def _is_folder(self, path: str) -> bool:
        return path == ABOVE or (path == PATH and self._disk.folder)

    def _descriptor(self, opened: Opened) -> int:
        self._number += 1
        self._open[self._number] = opened
        return self._number

    def _name(self, file: int) -> str:
        node = self._open[file]
        return next(name for name, held in self._disk.nodes.items() if held is node)


def _status(opened: Opened) -> os.stat_result:
    size, mode = (0, stat.S_IFDIR | 0o700) if isinstance(opened, str) else (len(opened.content), stat.S_IFREG | 0o600)
    number = hash(opened) if isinstance(opened, str) else id(opened)
    return os.stat_result((mode, number, 0, 1, 0, 0, size, 0, 0, 0))


@contextmanager
def files_over(disk: SimulatedDisk) -> Iterator[record_posix.PosixRecordFiles]:
    """The real folder's code on a simulated disk; while it lasts, no other folder can be used by this process."""
    calls = SystemCalls(disk)
    with (
        mock.patch.object(record_posix, "os", calls),
        mock.patch.object(record_posix, "fcntl", calls),
        mock.patch.object(private_folders, "os", calls),
    ):
        yield record_posix.PosixRecordFiles(PATH)  # type: ignore[arg-type]
