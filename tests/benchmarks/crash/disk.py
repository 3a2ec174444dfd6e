"""A folder whose disk forgets what was not synced: what is durable is kept apart from what only the cache holds.

A file is a list of its contents since its last sync, oldest first; a name is a list of the files it stood for since the
folder's last sync. Any of these states, sector by sector and name by name, can be what a power cut leaves; which mixes
are possible is decided in `images.py`. Knows nothing of chunks or ids. One thread uses it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from tensorfold.adapters.filesystem.record_files import Entry

TEMPORARY = ".new"
"""Ends the name that a replaced file has until it is renamed."""


class Node:
    """A file without a name. `versions[0]` is durable, the last is what readers see, each one whole."""

    __slots__ = ("versions",)

    def __init__(self, content: bytes = b"") -> None:
        self.versions = [content]

    @property
    def content(self) -> bytes:
        """What a reader sees."""
        return self.versions[-1]

    def change(self, content: bytes) -> None:
        """One more state that may be on the disk or not."""
        self.versions.append(content)

    def settle(self) -> None:
        """The last state is durable."""
        del self.versions[:-1]


class SimulatedDisk:
    """`RecordFiles` over a disk that can lose power.

    `moment` is called after every change, with the change in words: between two calls of it nothing new can be lost.
    `room` is how many bytes may still be written; past it writes fall short and then fail, as on a full disk.
    """

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        """A folder with `content`, all of it durable; None means there is no folder yet."""
        self.folder = content is not None
        self.folder_durable = self.folder
        self.nodes: dict[str, Node] = {name: Node(data) for name, data in (content or {}).items()}
        self.history: dict[str, list[Node | None]] = {}
        """States of each name that changed since the folder's last sync, the durable one first."""
        self.renamed: list[tuple[str, str]] = []
        self.moment: Callable[[str], None] = lambda change: None
        self.room: int | None = None
        self.changes = 0

    # RecordFiles

    def create_folder(self) -> None:
        """Its own name is durable at once, as the folder above is synced with it."""
        if not self.folder:
            self.make_folder()
            self.sync_above()

    def present(self) -> bool:
        """Nobody removes it."""
        return self.folder

    def replaced(self) -> bool:
        """Nobody does."""
        return False

    def entries(self) -> list[Entry]:
        """Everything is a plain file."""
        if not self.folder:
            raise FileNotFoundError(errno.ENOENT, "no folder")
        return [Entry(name, len(node.content), True) for name, node in self.nodes.items()]

    def read(self, name: str, most: int) -> bytes:
        """From the cache."""
        return self._node(name).content[:most]

    def create(self, name: str) -> None:
        """An empty file; neither it nor its name is durable."""
        if name in self.nodes:
            raise FileExistsError(errno.EEXIST, name)
        if self.room is not None and self.room <= 0:
            raise OSError(errno.ENOSPC, "disk full")
        self._point(name, Node())
        self._tell(f"create {name}")

    def append(self, name: str, data: bytes) -> int:
        """Written to the cache."""
        node = self._node(name)
        if self.room is not None:
            if self.room <= 0:
                raise OSError(errno.ENOSPC, "disk full")
            data = data[: self.room]
            self.room -= len(data)
        node.change(node.content + data)
        self._tell(f"append {len(data)} bytes to {name}")
        return len(data)

    def truncate(self, name: str, size: int) -> None:
        """Cut in the cache; what was cut off may come back."""
        node = self._node(name)
        node.change(node.content[:size].ljust(size, b"\0"))
        self._tell(f"truncate {name} to {size}")

    def sync(self, name: str) -> None:
        """The content is durable; the name may not be."""
        self._node(name).settle()
        self._tell(f"sync {name}")

    def sync_folder(self) -> None:
        """The names are durable; their contents may not be."""
        self.history.clear()
        self.renamed.clear()
        self._tell("sync folder")

    def replace(self, name: str, data: bytes) -> None:
        """A new file beside the old one, durable before it takes the name; the name itself is not durable yet."""
        temporary = name + TEMPORARY
        if temporary in self.nodes:
            self.remove(temporary)
        self.create(temporary)
        self.append(temporary, data)
        self.sync(temporary)
        self.rename(temporary, name)

    def remove(self, name: str) -> None:
        """The name goes; it may come back."""
        self._node(name)
        self._point(name, None)
        self._tell(f"remove {name}")

    def lock(self) -> bool:
        """Always free: whoever held it died with the machine."""
        if "lock" not in self.nodes:
            self._point("lock", Node())
            self._tell("create lock")
        return True

    def unlock(self) -> None:
        """Nothing is kept."""

    # What the calls of a system do beside these

    def make_folder(self) -> None:
        """The folder is there; its own name may be lost."""
        self.folder = True
        self._tell("make folder")

    def sync_above(self) -> None:
        """The folder's own name is durable."""
        self.folder_durable = self.folder
        self._tell("sync the folder above")

    def rename(self, old: str, new: str) -> None:
        """One name takes the place of another; both names are durable only after the folder's next sync."""
        self._point(new, self._node(old))
        self._point(old, None)
        self.renamed.append((old, new))
        self._tell(f"rename {old} to {new}")

    # Inside

    def _node(self, name: str) -> Node:
        if name not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, name)
        return self.nodes[name]

    def _point(self, name: str, node: Node | None) -> None:
        self.history.setdefault(name, [self.nodes.get(name)]).append(node)
        if node is None:
            del self.nodes[name]
        else:
            self.nodes[name] = node

    def _tell(self, change: str) -> None:
        self.changes += 1
        self.moment(change)
