"""Reads replies for tests, cut as a test wants, and puts together what came out as a client would."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tensorfold.domain.conversation.dialects import DIALECTS
from tensorfold.domain.conversation.offered_tools import OfferedTools
from tensorfold.domain.conversation.reply_form import CHANNEL, THINK
from tensorfold.domain.conversation.reply_reader import (
    CallArguments,
    CallBegin,
    CallEnd,
    CallsWanted,
    ReplyPart,
    ReplyReader,
    Said,
    Thought,
)
from tensorfold.domain.conversation.thoughts import ThoughtMarks, ThoughtSplitter
from tensorfold.domain.conversation.token_bytes import TokenBytes

PROPERTIES: dict[str, Any] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "share": {"type": "number"},
    "sure": {"type": "boolean"},
    "where": {"anyOf": [{"type": "object"}, {"type": "null"}]},
    "items": {"type": "array", "items": {"type": "string"}},
}
TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": PROPERTIES}}}
BARE_TOOL = {"type": "function", "function": {"name": "now"}}
TOOLS = (TOOL, BARE_TOOL)
QWEN, GLM, GEMMA, JSON = "function_parameters", "arg_key_value", "gemma4", "json"


@dataclass
class Call:
    """One call as it was put together."""

    name: str
    arguments: str = ""
    whole: bool = False

    @property
    def parsed(self) -> Any:
        """The arguments. Raises when they are no JSON."""
        return json.loads(self.arguments)


@dataclass
class Read:
    """A reply as it was put together."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    tokens: int = 0
    parts: list[ReplyPart] = field(default_factory=list)

    @property
    def plain(self) -> tuple[str, str, list[Call], int]:
        """What must be the same however a reply is cut; the count of tokens is another's with other tokens."""
        return self.text, self.reasoning, self.calls, 0


def read(
    pieces: Iterable[str | bytes],
    dialect: str = "",
    *,
    thoughts: ThoughtMarks | None = None,
    inside: bool = False,
    tools: Sequence[Any] = TOOLS,
    most: int | None = None,
    stops: tuple[bytes, ...] = (),
) -> Read:
    """Read a reply whose tokens are these pieces, each fed alone."""
    table = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
    calls = CallsWanted(DIALECTS[dialect], OfferedTools(tools), most) if dialect else None
    splitter = ThoughtSplitter(thoughts, inside) if thoughts is not None else None
    reader = ReplyReader(TokenBytes(table), stops, splitter, calls)
    parts = [part for token in range(len(table)) for part in reader.feed([token])]
    told = Read(parts=parts + reader.finish(), tokens=reader.reasoning_tokens)
    for part in told.parts:
        match part:
            case Said(text):
                assert text
                told.text += text
            case Thought(text):
                assert text
                told.reasoning += text
            case CallBegin(index, name):
                assert index == len(told.calls)
                told.calls.append(Call(name))
            case CallArguments(index, piece):
                assert piece
                assert index == len(told.calls) - 1
                told.calls[index].arguments += piece
            case CallEnd(index):
                told.calls[index].whole = True
    assert reader.whole_calls == sum(call.whole for call in told.calls)
    return told


def cuts(text: str) -> Iterable[list[bytes]]:
    """A text whole, byte by byte, and cut once at every place, inside characters too."""
    data = text.encode()
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


def read_every_way(text: str, dialect: str = "", **how: Any) -> Read:
    """Read a text under every cut; all must tell the same."""
    first: Read | None = None
    for pieces in cuts(text):
        told = read(pieces, dialect, **how)
        if first is None:
            first = told
        assert told.plain == first.plain, pieces
    assert first is not None
    return first


__all__ = ["CHANNEL", "GEMMA", "GLM", "JSON", "QWEN", "THINK", "Call", "Read", "cuts", "read", "read_every_way"]
