"""A record's folder that says what is about to be done to it, so that whatever is cut off half done is known."""

from __future__ import annotations

from typing import Protocol

from tensorfold.adapters.filesystem.record_files import Entry, RecordFiles


class Listener(Protocol):
    """Hears of each change before it is made."""

    def writing(self, name: str, at: int, data: bytes) -> None:
        """`data` is about to be written at byte `at`."""
        ...

    def cutting(self, name: str, size: int) -> None:
        """The file is about to be cut to `size` bytes."""
        ...

    def removing(self, name: str) -> None:
        """The file is about to be removed."""
        ...


class WatchedFiles:
    """`RecordFiles` that tell a listener of every append, truncate and remove, then pass the call on."""

    def __init__(self, inner: RecordFiles, listener: Listener) -> None:
        self._inner = inner
        self._listener = listener

    def create_folder(self) -> None:
        """Passed on."""
        self._inner.create_folder()

    def present(self) -> bool:
        """Passed on."""
        return self._inner.present()

    def replaced(self) -> bool:
        """Passed on."""
        return self._inner.replaced()

    def entries(self) -> list[Entry]:
        """Passed on."""
        return self._inner.entries()

    def read(self, name: str, most: int) -> bytes:
        """Passed on."""
        return self._inner.read(name, most)

    def create(self, name: str) -> None:
        """Passed on."""
        self._inner.create(name)

    def append(self, name: str, data: bytes) -> int:
        """Told with the size that the file has now."""
        size = next((entry.size for entry in self._inner.entries() if entry.name == name), 0)
        self._listener.writing(name, size, data)
        return self._inner.append(name, data)

    def truncate(self, name: str, size: int) -> None:
        """Told, then passed on."""
        self._listener.cutting(name, size)
        self._inner.truncate(name, size)

    def sync(self, name: str) -> None:
        """Passed on."""
        self._inner.sync(name)

    def sync_folder(self) -> None:
        """Passed on."""
        self._inner.sync_folder()

    def replace(self, name: str, data: bytes) -> None:
        """Passed on."""
        self._inner.replace(name, data)

    def remove(self, name: str) -> None:
        """Told, then passed on."""
        self._listener.removing(name)
        self._inner.remove(name)

    def lock(self) -> bool:
        """Passed on."""
        return self._inner.lock()

    def unlock(self) -> None:
        """Passed on."""
        self._inner.unlock()
