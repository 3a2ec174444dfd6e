"""The file that API keys may be read from; another hand may change it at any time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

Stamp = tuple[int, ...] | None
"""Changes with the file; None while it is not there."""


@dataclass(frozen=True, slots=True)
class KeyText:
    """What a key file holds. `shared` is its mode where others than its owner may touch it, else None."""

    data: bytes
    shared: int | None = None


class KeyFile(Protocol):
    """One file of keys."""

    @property
    def name(self) -> str:
        """The file as refusals name it, its flag included."""
        ...

    def stamp(self) -> Stamp:
        """A look at the file that reads nothing of it."""
        ...

    def read(self) -> KeyText:
        """All of it. Raises RefusedError when it cannot be read or is too large to be one."""
        ...
