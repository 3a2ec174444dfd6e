"""A key file in memory, changed by a test at any moment, also between a look and a reading."""

from __future__ import annotations

from collections.abc import Callable

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.keys import Stamp


class FakeKeyFile:
    """Holds `data`, or nothing when it is None. `meanwhile` runs once, while the file is read."""

    name = "--api-key-file keys"

    def __init__(self, data: bytes | None = b"") -> None:
        self.data = data
        self.reads = 0
        self.meanwhile: Callable[[], None] | None = None
        self._version = 0

    def write(self, data: bytes | None) -> None:
        """Change the file; None removes it."""
        self.data = data
        self._version += 1

    def stamp(self) -> Stamp:
        """The number of the change."""
        return None if self.data is None else (self._version,)

    def read(self) -> bytes:
        """What it holds. Raises RefusedError when it is not there."""
        self.reads += 1
        data = self.data
        change, self.meanwhile = self.meanwhile, None
        if change is not None:
            change()
        if data is None:
            raise RefusedError(f"{self.name} is not there.")
        return data
