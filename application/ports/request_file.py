"""The file that bodies of requests may be appended to; another hand may move or remove it at any time."""

from __future__ import annotations

from typing import Protocol


class RequestFile(Protocol):
    """One file of lines."""

    @property
    def name(self) -> str:
        """The file as refusals name it, its variable included."""
        ...

    def append(self, line: bytes) -> None:
        """Add a line, whole or not at all as far as readers of whole lines can tell; an empty one only tries.

        Creates the file for its owner alone. Raises RefusedError when it cannot be written, or others may use it.
        """
        ...
