"""The machine around the server: clock, disk and the runtime's memory."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol


class Clock(Protocol):
    """Time, so that tests can own it."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def wall(self) -> float:
        """Unix seconds."""
        ...


class Disk(Protocol):
    """Space where files go."""

    def free_bytes(self, path: Path) -> int:
        """Bytes that may still be written below `path`."""
        ...


class MemoryRuntime(Protocol):
    """The backend allocator's figures, in bytes. None where the runtime cannot tell or bind a figure."""

    def active(self) -> int | None:
        """Bytes in use."""
        ...

    def cached(self) -> int | None:
        """Freed bytes held for reuse."""
        ...

    def peak(self) -> int | None:
        """Most bytes in use so far."""
        ...

    def limit(self, size: int) -> bool:
        """Set the allocator's limit; False when the runtime does not bind it."""
        ...

    def limit_cache(self, size: int) -> bool:
        """Set the most freed bytes that are held for reuse; False when the runtime does not bind it."""
        ...

    def release(self) -> None:
        """Hand reusable buffers back."""
        ...
