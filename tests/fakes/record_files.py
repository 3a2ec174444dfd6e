"""A record's folder in memory, and a wrapper that lets any call on a folder fail as a disk would."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from tensorfold.adapters.filesystem.record_files import Entry, RecordFiles

Fails = Callable[[str, str], int | None]


def _missing(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


@dataclass(slots=True)
class MemoryFolder:
    """What several RecordFiles share. `contents` None: there is no folder. `odd` names are links or devices.

    `anew`: the folder, or its lock, is another one by now.
    """

    contents: dict[str, bytes] | None = None
    odd: set[str] = field(default_factory=set)
    holder: object | None = None
    there: bool = True
    anew: bool = False


class MemoryRecordFiles:
    """RecordFiles over a MemoryFolder. `calls` keeps (call, name) of whatever changes it or makes it durable."""

    def __init__(self, folder: MemoryFolder | None = None) -> None:
        self.folder = folder if folder is not None else MemoryFolder()
        self.calls: list[tuple[str, str]] = []

    def create_folder(self) -> None:
        """Made where it is missing."""
        if self.folder.contents is None:
            self.calls.append(("create_folder", ""))
            self.folder.contents = {}

    def present(self) -> bool:
        """Unless a test says otherwise."""
        return self.folder.contents is not None and self.folder.there and not self.folder.anew

    def replaced(self) -> bool:
        """When a test says so."""
        return self.folder.anew

    def entries(self) -> list[Entry]:
        """In the order they were made."""
        held = self._held()
        return [Entry(name, len(data), name not in self.folder.odd) for name, data in held.items()]

    def read(self, name: str, most: int) -> bytes:
        """From memory."""
        return self._data(name)[:most]

    def create(self, name: str) -> None:
        """Empty."""
        if name in self._held():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
        self.calls.append(("create", name))
        self._held()[name] = b""

    def append(self, name: str, data: bytes) -> int:
        """All of it."""
        before = self._data(name)
        self.calls.append(("append", name))
        self._held()[name] = before + data
        return len(data)

    def truncate(self, name: str, size: int) -> None:
        """A shorter file stays as it is."""
        before = self._data(name)
        self.calls.append(("truncate", name))
        self._held()[name] = before[:size]

    def sync(self, name: str) -> None:
        """Remembered."""
        self._data(name)
        self.calls.append(("sync", name))

    def sync_folder(self) -> None:
        """Remembered."""
        self._held()
        self.calls.append(("sync_folder", ""))

    def replace(self, name: str, data: bytes) -> None:
        """At once."""
        self.calls.append(("replace", name))
        self._held()[name] = data

    def remove(self, name: str) -> None:
        """At once."""
        self._data(name)
        self.calls.append(("remove", name))
        del self._held()[name]

    def lock(self) -> bool:
        """Free when nobody else has it."""
        if self.folder.holder not in (None, self):
            return False
        self.folder.holder = self
        self._held().setdefault("lock", b"")
        return True

    def unlock(self) -> None:
        """Harmless without it."""
        if self.folder.holder is self:
            self.folder.holder = None

    def _held(self) -> dict[str, bytes]:
        if self.folder.contents is None:
            raise _missing("")
        return self.folder.contents

    def _data(self, name: str) -> bytes:
        held = self._held()
        if name not in held:
            raise _missing(name)
        if name in self.folder.odd:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return held[name]


class FaultyRecordFiles:
    """Another RecordFiles whose calls fail where `fails(call, name)` gives an error number.

    An append that fails with `short` set first writes that many bytes; with `quiet` set it then says so instead of
    failing. `before(call, name)` is called ahead of every call.
    """

    def __init__(self, files: RecordFiles) -> None:
        self.files = files
        self.fails: Fails = lambda call, name: None
        self.before: Callable[[str, str], None] = lambda call, name: None
        self.short: int | None = None
        self.quiet = False

    def create_folder(self) -> None:
        """Or fail."""
        self._may("create_folder", "")
        self.files.create_folder()

    def present(self) -> bool:
        """Or fail."""
        self._may("present", "")
        return self.files.present()

    def replaced(self) -> bool:
        """Or fail."""
        self._may("replaced", "")
        return self.files.replaced()

    def entries(self) -> list[Entry]:
        """Or fail."""
        self._may("entries", "")
        return self.files.entries()

    def read(self, name: str, most: int) -> bytes:
        """Or fail."""
        self._may("read", name)
        return self.files.read(name, most)

    def create(self, name: str) -> None:
        """Or fail."""
        self._may("create", name)
        self.files.create(name)

    def append(self, name: str, data: bytes) -> int:
        """Or fail, in part where `short` says so."""
        try:
            self._may("append", name)
        except OSError:
            if self.short is None:
                raise
            written = self.files.append(name, data[: self.short])
            if self.quiet:
                return written
            raise
        return self.files.append(name, data)

    def truncate(self, name: str, size: int) -> None:
        """Or fail."""
        self._may("truncate", name)
        self.files.truncate(name, size)

    def sync(self, name: str) -> None:
        """Or fail."""
        self._may("sync", name)
        self.files.sync(name)

    def sync_folder(self) -> None:
        """Or fail."""
        self._may("sync_folder", "")
        self.files.sync_folder()

    def replace(self, name: str, data: bytes) -> None:
        """Or fail."""
        self._may("replace", name)
        self.files.replace(name, data)

    def remove(self, name: str) -> None:
        """Or fail."""
        self._may("remove", name)
        self.files.remove(name)

    def lock(self) -> bool:
        """Or fail."""
        self._may("lock", "lock")
        return self.files.lock()

    def unlock(self) -> None:
        """Or fail."""
        self._may("unlock", "lock")
        self.files.unlock()

    def _may(self, call: str, name: str) -> None:
        self.before(call, name)
        number = self.fails(call, name)
        if number is not None:
            raise OSError(number, os.strerror(number), name)
