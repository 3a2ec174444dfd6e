"""A file of lines in memory that fails while it is told to."""

from __future__ import annotations

from tensorfold.application.ports.checkpoints import RefusedError


class FakeRequestFile:
    """Holds `lines`; `refusal` is raised while it stands, `broken` as well."""

    name = "TENSORFOLD_REQUEST_LOG requests"

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.refusal: str | None = None
        self.broken: Exception | None = None

    def append(self, line: bytes) -> None:
        """Keep a line. Raises RefusedError."""
        if self.refusal is not None:
            raise RefusedError(f"{self.name} {self.refusal}.")
        if self.broken is not None:
            raise self.broken
        if line:
            self.lines.append(line)

    def data(self) -> bytes:
        """Everything that was written."""
        return b"".join(self.lines)
