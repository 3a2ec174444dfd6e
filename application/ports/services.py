"""Services that some features stand on: grammars, ranks, releases and reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class GrammarMatcher(Protocol):
    """A compiled grammar's position in one reply."""

    def mask(self) -> NDArray[np.uint32]:
        """Packed allowed-token bits for the next token."""
        ...

    def allowed(self, tokens: Sequence[int]) -> int:
        """How many of `tokens`, from the first, the grammar takes; the position does not move."""
        ...

    def advance(self, tokens: Sequence[int]) -> None:
        """Move over committed tokens. Raises ValueError when one is rejected."""
        ...

    def copy(self) -> GrammarMatcher:
        """An independent matcher at the same position."""
        ...


class GrammarCompiler(Protocol):
    """Compiles JSON Schema, regex, choices or Lark text once for a tokenizer."""

    def compile(self, kind: str, text: str) -> GrammarMatcher:
        """A matcher at its start. Raises RefusedError with one sentence on a malformed grammar."""
        ...


class RankLink(Protocol):
    """Numbered messages between two ranks."""

    @property
    def rank(self) -> int:
        """0 for the rank that serves."""
        ...

    def send(self, message: bytes) -> int:
        """Ship one message; returns its number."""
        ...

    def receive(self) -> tuple[int, bytes]:
        """The next message and its number. Raises ConnectionError when the peer is gone or a number is skipped."""
        ...


@dataclass(frozen=True, slots=True)
class Release:
    """A published version: `tag` is `vX.Y.Z`, `notes` the address of its notes."""

    tag: str
    notes: str


class ReleaseFeed(Protocol):
    """Where new versions are announced."""

    def latest(self, timeout: float) -> Release | None:
        """The newest release, or None when it cannot be learned in `timeout` seconds, all told."""
        ...

    def changelog(self, tag: str, timeout: float) -> str | None:
        """The changelog's text at a release's tag, or None when it cannot be learned in `timeout` seconds."""
        ...


class ReportWriter(Protocol):
    """Writes a benchmark's figures for people."""

    def write(self, path: Path, title: str, figures: Mapping[str, Any]) -> None:
        """One file at `path`; its suffix chooses the form."""
        ...
