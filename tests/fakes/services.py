"""Releases and reports without a network: what is announced is set, what is written is plain text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorfold.application.ports.services import Release


class FakeReleaseFeed:
    """Announces `release`; None is a feed that cannot be reached. `asked` keeps the timeouts it was given."""

    def __init__(self, release: Release | None = None, changes: str | None = None) -> None:
        self.release = release
        self.changes = changes
        self.asked: list[float] = []

    def latest(self, timeout: float) -> Release | None:
        """As set."""
        self.asked.append(timeout)
        return self.release

    def changelog(self, tag: str, timeout: float) -> str | None:
        """The changes set, at the tag of the release that is set."""
        self.asked.append(timeout)
        return self.changes if self.release is not None and tag == self.release.tag else None


class FakeReportWriter:
    """Writes a title and one line for each figure, whatever the suffix; `written` keeps what it was given."""

    def __init__(self) -> None:
        self.written: dict[Path, tuple[str, Mapping[str, Any]]] = {}

    def write(self, path: Path, title: str, figures: Mapping[str, Any]) -> None:
        """One file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join([title, *(f"{name}: {value}" for name, value in figures.items())]) + "\n")
        self.written[path] = (title, dict(figures))
