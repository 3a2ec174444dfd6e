"""A running reply as its reader sees it: shown text that each round adds, then how it ended.

Text is made in the thread that reads the reply, never in the engine's.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.application.generation import Generation
from tensorfold.application.replies import Cancelled, Ended, Failed, Landed, ReplyStats, token_sha
from tensorfold.domain.conversation.reply_reader import (
    CallArguments,
    CallBegin,
    ReplyPart,
    ReplyReader,
    Said,
    Thought,
)


@dataclass(frozen=True, slots=True)
class CallDelta:
    """What was added to a tool call: its id and name first, then the JSON of its arguments piece by piece."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """What a round added: answer, reasoning and tool calls, with the ids that landed in it."""

    text: str
    reasoning: str
    token_ids: tuple[int, ...]
    calls: tuple[CallDelta, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """The reply is whole; `text`, `reasoning` and `calls` are what was still held back.

    `finish_reason` is `stop`, `length`, or `tool_calls` when a reply with a whole call ended by itself.
    """

    finish_reason: str
    stats: ReplyStats
    token_sha: str
    text: str = ""
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ReplyError:
    """The reply ended with an error that may be shown to the client."""

    message: str
    code: str | None = None


ReplyEvent = ReplyDelta | ReplyDone | ReplyError


class Reply:
    """A running reply, pulled by one reader."""

    __slots__ = ("_generation", "_ids", "_reader", "created", "id", "prompt_tokens")

    def __init__(self, generation: Generation, reader: ReplyReader, created: int) -> None:
        self.id = secrets.token_hex(12)
        self.created = created
        self.prompt_tokens = len(generation.request.prompt)
        self._generation = generation
        self._reader = reader
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
            return _delta(self._reader.feed(event.ids), event.ids)
        if isinstance(event, Ended):
            tail = _delta(self._reader.finish(stopped=event.stop is not None), ())
            return ReplyDone(
                "tool_calls" if event.reason == "stop" and self._reader.whole_calls else event.reason,
                event.stats,
                token_sha(self._ids),
                tail.text,
                tail.reasoning,
                tail.calls,
                self._reader.reasoning_tokens,
            )
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


def _delta(parts: list[ReplyPart], ids: tuple[int, ...]) -> ReplyDelta:
    text, reasoning = "", ""
    calls: list[CallDelta] = []
    for part in parts:
        match part:
            case Said(piece):
                text += piece
            case Thought(piece):
                reasoning += piece
            case CallBegin(index, name):
                calls.append(CallDelta(index, "", f"call_{secrets.token_hex(12)}", name))
            case CallArguments(index, json):
                calls.append(CallDelta(index, json))
    return ReplyDelta(text, reasoning, ids, tuple(calls))
