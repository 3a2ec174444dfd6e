"""An installation whose commands are written down instead of run, and a memory that is not a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tensorfold.application.ports.installation import Installed

Words = tuple[str, ...]


class FakeInstallation:
    """Answers `facts` as set. `codes` holds exit codes by a word of the command, `said` what reading one gives.

    A command that installs moves the version that is read back to `becomes`.
    """

    def __init__(self, installed: Installed, becomes: str = "") -> None:
        self.installed = installed
        self.becomes = becomes
        self.changes: str | None = None
        self.codes: dict[str, int] = {}
        self.said: dict[str, str] = {}
        self.commands: list[tuple[Words, Path | None]] = []

    def facts(self) -> Installed:
        """As set."""
        return self.installed

    def changelog(self) -> str | None:
        """As set, for an editable install."""
        return self.changes if self.installed.editable is not None else None

    def run(self, command: Sequence[str], folder: Path | None = None) -> int:
        """Written down."""
        self.commands.append((tuple(command), folder))
        return next((code for word, code in self.codes.items() if word in command), 0)

    def read(self, command: Sequence[str], folder: Path | None = None) -> tuple[int, str]:
        """Written down, and answered as set."""
        code = self.run(command, folder)
        told = next((said for word, said in self.said.items() if word in command), None)
        return code, f"{self.becomes}\n" if told is None and "-c" in command else told or ""

    @property
    def words(self) -> list[str]:
        """Every command as one line."""
        return [" ".join(command) for command, _ in self.commands]


class FakeUpdateMemory:
    """Remembers, unless `full`."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.check: tuple[str, float] | None = None
        self.version: str | None = None

    def checked(self) -> tuple[str, float] | None:
        """What was kept."""
        return self.check

    def remember_check(self, tag: str, when: float) -> None:
        """Keep it."""
        if not self.full:
            self.check = (tag, when)

    def forget_check(self) -> None:
        """Let go of it."""
        self.check = None

    def seen(self) -> str | None:
        """What was kept."""
        return self.version

    def remember_seen(self, version: str) -> bool:
        """Keep it."""
        if not self.full:
            self.version = version
        return not self.full
