"""A disk and an allocator that exist as numbers alone."""

from __future__ import annotations

from pathlib import Path


class FakeDisk:
    """`free` bytes everywhere, except below the folders of `folders` (the deepest one that holds the path decides)."""

    def __init__(self, free: int = 1 << 40) -> None:
        self.free = free
        self.folders: dict[Path, int] = {}

    def free_bytes(self, path: Path) -> int:
        """As set."""
        holders = [folder for folder in self.folders if path == folder or folder in path.parents]
        return self.folders[max(holders, key=lambda folder: len(folder.parts))] if holders else self.free


class FakeMemory:
    """An allocator with a cache of freed bytes. `binds` False: figures are unknown and the limit is not bound.

    `allocate` takes from the cache first; past the limit it raises MemoryError and changes nothing.
    """

    def __init__(self, *, binds: bool = True) -> None:
        self.binds = binds
        self.bound: int | None = None
        self.kept: int | None = None
        self.releases = 0
        self._active = self._cached = self._peak = 0

    def active(self) -> int | None:
        """Bytes allocated and not freed."""
        return self._active if self.binds else None

    def cached(self) -> int | None:
        """Bytes freed and not handed back."""
        return self._cached if self.binds else None

    def peak(self) -> int | None:
        """Most bytes active so far."""
        return self._peak if self.binds else None

    def limit(self, size: int) -> bool:
        """Bind later allocations."""
        if self.binds:
            self.bound = size
        return self.binds

    def limit_cache(self, size: int) -> bool:
        """Bind the cache from now on."""
        if self.binds:
            self.kept = size
            self._cached = min(self._cached, size)
        return self.binds

    def release(self) -> None:
        """Empty the cache."""
        self.releases += 1
        self._cached = 0

    def allocate(self, size: int) -> None:
        """Take bytes, reusing freed ones; those that cannot be reused are handed back to stay under the limit."""
        if self.bound is not None and self._active + size > self.bound:
            raise MemoryError(f"{self._active + size} bytes, the limit is {self.bound}")
        self._cached -= min(self._cached, size)
        self._active += size
        if self.bound is not None:
            self._cached = min(self._cached, self.bound - self._active)
        self._peak = max(self._peak, self._active)

    def free(self, size: int) -> None:
        """Give bytes to the cache."""
        if size > self._active:
            raise ValueError(f"{size} bytes freed, {self._active} were in use")
        self._active -= size
        self._cached += size
        if self.kept is not None:
            self._cached = min(self._cached, self.kept)
