"""The calls a record makes on its folder, as one small Protocol, so that faults and power cuts can be put in between.

Names are plain file names. Every call may raise OSError; none follows a symbolic link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in the folder. `regular` is False for links, folders and devices; `size` is in bytes."""

    name: str
    size: int
    regular: bool


class RecordFiles(Protocol):
    """One folder of files."""

    def create_folder(self) -> None:
        """Make the folder with mode 0700 where it is missing, whatever the umask."""
        ...

    def present(self) -> bool:
        """Whether the folder still is the one that was opened; before that, whether there is one."""
        ...

    def replaced(self) -> bool:
        """Whether another folder stands where the one that was opened stood, or another lock in the place of ours."""
        ...

    def entries(self) -> list[Entry]:
        """What lies in the folder, in no order. FileNotFoundError when there is no folder."""
        ...

    def read(self, name: str, most: int) -> bytes:
        """At most the first `most` bytes of a file."""
        ...

    def create(self, name: str) -> None:
        """A new empty file of mode 0600, whatever the umask. FileExistsError when there is one."""
        ...

    def append(self, name: str, data: bytes) -> int:
        """One write at the end of an existing file; bytes written, which may be fewer."""
        ...

    def truncate(self, name: str, size: int) -> None:
        """Cut a file to `size` bytes."""
        ...

    def sync(self, name: str) -> None:
        """Return when the file's content has reached the disk."""
        ...

    def sync_folder(self) -> None:
        """Return when created, renamed and removed names have reached the disk."""
        ...

    def replace(self, name: str, data: bytes) -> None:
        """The file holds all of `data` or what it held before, whenever the machine stops; mode 0600."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file; FileNotFoundError when it is gone."""
        ...

    def lock(self) -> bool:
        """Take the exclusive lock of the file `lock`, made where it is missing; False when another process has it."""
        ...

    def unlock(self) -> None:
        """Give the lock back; harmless without it."""
        ...
