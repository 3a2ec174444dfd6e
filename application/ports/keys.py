"""The file that API keys may be read from; another hand may change it at any time."""

from __future__ import annotations

from typing import Protocol

Stamp = tuple[int, ...] | None
"""Changes with the file; None while it is not there."""


class KeyFile(Protocol):
    """One file of keys."""

    @property
    def name(self) -> str:
        """The file as refusals name it, its flag included."""
        ...

    def stamp(self) -> Stamp:
        """A look at the file that reads nothing of it."""
        ...

    def read(self) -> bytes:
        """All of it. Raises RefusedError when it cannot be read, is too large to be one, or others may use it."""
        ...
