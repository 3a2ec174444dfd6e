"""A running reply as its reader sees it: shown text that each round adds, then how it ended.

Text is made in the thread that reads the reply, never in the engine's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.application.generation import Generation
from tensorfold.application.replies import Cancelled, Ended, Failed, Landed, ReplyStats, token_sha
from tensorfold.domain.conversation.reply_text import ReplyText


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """Shown text that a round added, with the ids that landed in it."""

    text: str
    reasoning: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply is whole; `text` is what was still held back."""

    finish_reason: str
    stats: ReplyStats
    token_sha: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class ReplyError:
    """The reply ended with an error that may be shown to the client."""

    message: str
    code: str | None = None


ReplyEvent = ReplyDelta | ReplyDone | ReplyError


class Reply:
    """A running reply, pulled by one reader."""

    __slots__ = ("_generation", "_ids", "_text", "created", "id", "prompt_tokens")

    def __init__(self, generation: Generation, text: ReplyText, created: int) -> None:
        self.id = secrets.token_hex(12)
        self.created = created
        self.prompt_tokens = len(generation.request.prompt)
        self._generation = generation
        self._text = text
        self._ids: list[int] = []

    @property
    def greedy(self) -> bool:
        """Whether the reply is drawn by plain argmax."""
        return self._generation.request.sampling.greedy

    @property
    def drafts(self) -> bool:
        """Whether the request allowed drafts."""
        return self._generation.request.draft

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Ids landed so far."""
        return tuple(self._ids)

    def next(self, timeout: float) -> ReplyEvent | None:
        """The next event, or None when `timeout` seconds brought none."""
        event = self._generation.next(timeout)
        if event is None:
            return None
        if isinstance(event, Landed):
            self._ids += event.ids
            return ReplyDelta(self._text.feed(event.ids), "", event.ids)
        if isinstance(event, Ended):
            tail = self._text.finish(stopped=event.stop is not None)
            return ReplyDone(event.reason, event.stats, token_sha(self._ids), tail)
        if isinstance(event, Failed):
            return ReplyError(event.message, event.code)
        assert isinstance(event, Cancelled)
        return ReplyError("The request was cancelled.")

    def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` after every event from now on, and once now; it must not wait."""
        self._generation.listen(heard)

    def cancel(self) -> None:
        """End the request at its next round; harmless afterwards."""
        self._generation.cancel()
