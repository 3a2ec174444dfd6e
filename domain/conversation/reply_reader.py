"""A chat reply read from its ids: thought, answer and calls, each as soon as it is certain.

However the ids are grouped, the same comes out in the end: a reply that is streamed and one that is waited for are read
by this one reader.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass

from tensorfold.domain.conversation.call_reader import (
    CallArguments,
    CallBegin,
    CallCount,
    CallEnd,
    CallEvent,
    CallReader,
    Said,
)
from tensorfold.domain.conversation.dialects.dialect import CallDialect
from tensorfold.domain.conversation.offered_tools import OfferedTools
from tensorfold.domain.conversation.reply_text import StoppedText
from tensorfold.domain.conversation.thoughts import ThoughtSplitter
from tensorfold.domain.conversation.token_bytes import TokenBytes

_decoder = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class Thought:
    """A piece of the reasoning."""

    text: str


ReplyPart = Thought | CallEvent
"""`Said` is a piece of the answer."""


@dataclass(frozen=True, slots=True)
class CallsWanted:
    """The calls to look for: how they are written, of which tools, and how many are passed on (None: all)."""

    dialect: CallDialect
    tools: OfferedTools
    most: int | None = None


class ReplyReader:
    """Reads one reply, in one thread. `thoughts` tells reasoning from answer, `calls` says what to look for."""

    __slots__ = (
        "_answer", "_answer_calls", "_begun", "_bytes", "_calls", "_count", "_plain", "_thinking", "_thought",
        "_thought_calls", "_thoughts", "_undecided", "reasoning_tokens",
    )  # fmt: skip

    def __init__(
        self,
        token_bytes: TokenBytes,
        stops: tuple[bytes, ...] = (),
        thoughts: ThoughtSplitter | None = None,
        calls: CallsWanted | None = None,
    ) -> None:
        self.reasoning_tokens = 0
        self._bytes = token_bytes
        self._thoughts = thoughts
        self._begun = False
        self._undecided = 0
        self._answer = StoppedText(stops)
        self._thought = _decoder("replace")
        self._thinking = False
        self._plain = thoughts is None and calls is None
        self._calls = calls
        self._count = CallCount(None if calls is None else calls.most)
        # In a thought a call counts only when it is whole: thoughts may speak of calls.
        self._answer_calls = self._reader(live=True)
        self._thought_calls = self._reader(live=False)

    @property
    def whole_calls(self) -> int:
        """Calls that were passed on to their end."""
        return self._count.whole

    def feed(self, ids: Iterable[int]) -> list[ReplyPart]:
        """What `ids` make certain, in the order of the reply."""
        parts: list[ReplyPart] = []
        if self._plain:
            self._say(self._answer.decode(b"".join(self._answer.release(self._shown(token)) for token in ids)), parts)
            return parts
        for token in ids:
            self._take(self._shown(token), parts)
        return _joined(parts)

    def finish(self, stopped: bool = False) -> list[ReplyPart]:
        """What is still held, when no more ids come; `stopped` when a stop string ended the reply."""
        parts: list[ReplyPart] = []
        for thought, data in () if self._thoughts is None else self._thoughts.finish():
            self._add(thought, data, parts)
        self._end_thought(parts)
        self._say(self._answer.finish(stopped), parts)
        if self._answer_calls is not None:
            parts += self._answer_calls.finish()
        return _joined(parts)

    def _reader(self, *, live: bool) -> CallReader | None:
        calls = self._calls
        return None if calls is None else CallReader(calls.dialect, calls.tools, self._count, live=live)

    def _shown(self, token: int) -> bytes:
        data, self._begun = self._bytes.shown(token, self._begun)
        return data

    def _take(self, data: bytes, parts: list[ReplyPart]) -> None:
        thoughts = self._thoughts
        if thoughts is None or thoughts.settled:
            self._say(self._answer.add(data), parts)
            return
        was_inside = thoughts.inside
        pieces = thoughts.feed(data)
        for thought, piece in pieces:
            self._add(thought, piece, parts)
        if was_inside or thoughts.inside or any(thought for thought, _ in pieces):
            # The tokens of a mark that opened a thought belong to it.
            self.reasoning_tokens += 1 + self._undecided
            self._undecided = 0
        else:
            self._undecided = self._undecided + 1 if thoughts.undecided else 0
        if not thoughts.inside:
            self._end_thought(parts)

    def _add(self, thought: bool, data: bytes, parts: list[ReplyPart]) -> None:
        if not thought:
            self._end_thought(parts)
            self._say(self._answer.add(data), parts)
        else:
            self._thinking = True
            self._think(self._thought.decode(data), parts)

    def _think(self, text: str, parts: list[ReplyPart]) -> None:
        if self._thought_calls is not None:
            parts += _as_thought(self._thought_calls.feed(text))
        elif text:
            parts.append(Thought(text))

    def _end_thought(self, parts: list[ReplyPart]) -> None:
        """Pass on what a thought still held, and be ready for another."""
        if not self._thinking:
            return
        self._thinking = False
        self._think(self._thought.decode(b"", final=True), parts)
        if self._thought_calls is not None:
            parts += _as_thought(self._thought_calls.finish())
            self._thought_calls = self._reader(live=False)

    def _say(self, text: str, parts: list[ReplyPart]) -> None:
        if not text:
            return
        if self._answer_calls is not None:
            parts += self._answer_calls.feed(text)
        else:
            parts.append(Said(text))


def _as_thought(events: list[CallEvent]) -> list[ReplyPart]:
    return [Thought(event.text) if isinstance(event, Said) else event for event in events]


def _joined(parts: list[ReplyPart]) -> list[ReplyPart]:
    """Neighbouring pieces of one kind as one."""
    joined: list[ReplyPart] = []
    for part in parts:
        match joined[-1] if joined else None, part:
            case Thought(before), Thought(text):
                joined[-1] = Thought(before + text)
            case Said(before), Said(text):
                joined[-1] = Said(before + text)
            case CallArguments(index, before), CallArguments(same, text) if index == same:
                joined[-1] = CallArguments(index, before + text)
            case _:
                joined.append(part)
    return joined


__all__ = ["CallArguments", "CallBegin", "CallEnd", "CallsWanted", "ReplyPart", "ReplyReader", "Said", "Thought"]
