"""What a benchmark reads, writes and measures outside: files of prompts and results, and a server that replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Lines = Sequence[tuple[str, Mapping[str, Any]]]
"""JSON objects, each with the place it was read from as refusals name it."""


class BenchmarkFiles(Protocol):
    """Files of prompts and results. What is read is hostile; what is written replaces a file whole or not at all."""

    def public_prompts(self) -> Lines:
        """The prompts that come with the product."""
        ...

    def prompts(self, path: Path) -> Lines:
        """One JSON object a line; blank lines are left out. Raises RefusedError."""
        ...

    def result(self, path: Path) -> Mapping[str, Any]:
        """One JSON object, without NaN or infinity. Raises RefusedError."""
        ...

    def text(self, path: Path) -> str | None:
        """A text file, or None where there is none. Raises RefusedError."""
        ...

    def check_place(self, path: Path) -> None:
        """Refuse a path that `write` could not write, before anything is measured. Raises RefusedError."""
        ...

    def write(self, path: Path, text: str) -> None:
        """One file, whole. Raises RefusedError."""
        ...


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A streamed chat request. `seed` and `top_k` are sent only where a prompt states them."""

    model: str
    messages: Sequence[Mapping[str, str]]
    max_tokens: int
    temperature: float
    top_p: float
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class ServerReply:
    """A streamed reply to its end. Times are seconds from the request's first byte.

    `first_s` is when the first text came, None when none did; `last_s` when the last text came. `pieces` counts events
    with text, and `tokens` is the server's own count, None where it states none.
    """

    text: str
    first_s: float | None
    last_s: float
    seconds: float
    pieces: int
    tokens: int | None


class ServerFaultError(Exception):
    """A server that cannot be measured; `message` is one sentence of ours, `status` its HTTP status or None."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class ChatServer(Protocol):
    """An OpenAI-compatible server. Calls may come from several threads at once."""

    def models(self) -> Sequence[str]:
        """Ids of the models it names. Raises ServerFaultError."""
        ...

    def record_state(self) -> str | None:
        """What a server with a record says of its record's state; None where it states none."""
        ...

    def reply(self, request: ServerRequest) -> ServerReply:
        """Send a request and read its reply to the end. Raises ServerFaultError."""
        ...
