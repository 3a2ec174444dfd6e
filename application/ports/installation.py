"""This copy of the product: how it was installed, the commands that change it, and what earlier runs remembered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

NOT_RUN = 127
"""The exit code that stands for a program that is not there."""


@dataclass(frozen=True, slots=True)
class Installed:
    """What the package's metadata says about this copy.

    `python` is the interpreter that runs it and `pip` whether that one has pip. `address` is the project's, None
    when there is no metadata: then it was never installed. `editable` is the folder of an editable install, and
    `clone` the root of the git clone around that folder.
    """

    version: str
    python: str
    pip: bool
    address: str | None
    editable: Path | None = None
    clone: Path | None = None


class Installation(Protocol):
    """Tells how this copy was installed and runs commands; no shell ever reads their words."""

    def facts(self) -> Installed:
        """What is known without running anything."""
        ...

    def changelog(self) -> str | None:
        """The text of CHANGELOG.md in the folder of an editable install; None when there is none to read."""
        ...

    def run(self, command: Sequence[str], folder: Path | None = None) -> int:
        """Run a command in front of the user; its exit code, or NOT_RUN."""
        ...

    def read(self, command: Sequence[str], folder: Path | None = None) -> tuple[int, str]:
        """Run a command and take its output; its exit code, or NOT_RUN, and the text. Errors go to the user."""
        ...


class UpdateMemory(Protocol):
    """What runs remember about releases, in the cache folder. Reading trusts nothing; writing never fails."""

    def checked(self) -> tuple[str, float] | None:
        """The tag that was newest at the last check, and the wall time of that check in Unix seconds."""
        ...

    def remember_check(self, tag: str, when: float) -> None:
        """Keep a check's result."""
        ...

    def forget_check(self) -> None:
        """The next start asks again."""
        ...

    def seen(self) -> str | None:
        """The newest version that ever served from this cache folder."""
        ...

    def remember_seen(self, version: str) -> bool:
        """Keep a version as seen; False when it could not be kept."""
        ...
