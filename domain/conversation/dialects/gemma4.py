"""Gemma 4's calls: a name and an object whose keys are bare and whose texts stand between marks of their own.

`<|tool_call>call:NAME{key:<|"|>text<|"|>,n:3,list:[...],obj:{k:v}}<tool_call|>`; at an answer's start the first mark
may be missing. Texts in plain quotes and words without any are taken too. The call arrives whole: it is broken until
its last bracket.
"""

from __future__ import annotations

import re

from tensorfold.domain.conversation.argument_values import literal_kind, quoted, strict_json
from tensorfold.domain.conversation.dialects.dialect import (
    MOST_KEY,
    Broken,
    Reading,
    Source,
    key_of,
    offered,
    whole,
)
from tensorfold.domain.conversation.dialects.json_object import string_end
from tensorfold.domain.conversation.offered_tools import ANY, STRING, OfferedTools, Tool, Types

TEXT = '<|"|>'
_DEPTH = 64
_WORD_END = re.compile(r"[,}\]]")


class Gemma4:
    """Objects with bare keys."""

    name = "gemma4"
    opener = "<|tool_call>"
    bare_opener = "call:"
    marks = ("<|tool_call>", "<tool_call|>", TEXT)

    def read(self, source: Source, tools: OfferedTools) -> Reading[None]:
        """One call behind `<|tool_call>`, or at `call:`."""
        yield from source.blank()
        yield from source.one_of("call:")
        tool = offered(tools, (yield from source.until("{", tools.longest_name)))
        arguments = yield from _object(source, _DEPTH, tool)
        yield from source.blank()
        if not (yield from source.ahead("call:")):
            yield from source.closing("<tool_call|>")
        # Else another call stands inside the same marks, and is read as one that lacks the first.
        yield from whole(tool.name, arguments)

    def shows(self, text: str, tool: str) -> bool:
        """By the name behind `call:`."""
        return f"call:{tool}{{" in text


def _object(source: Source, depth: int, tool: Tool | None = None) -> Reading[str]:
    """JSON of an object, its first brace behind us; the parameters of `tool` have types."""
    yield from source.blank()
    if source.text.startswith("}", source.at):
        source.at += 1
        return "{}"
    members = []
    while True:
        key = yield from _key(source)
        types = ANY if tool is None else tool.types(key, ANY)
        members.append(f"{quoted(key)}:{(yield from _value(source, depth, types))}")
        yield from source.blank()
        if (yield from source.one_of(",", "}")) == "}":
            return "{" + ",".join(members) + "}"


def _list(source: Source, depth: int) -> Reading[str]:
    yield from source.blank()
    if source.text.startswith("]", source.at):
        source.at += 1
        return "[]"
    items = []
    while True:
        items.append((yield from _value(source, depth, ANY)))
        yield from source.blank()
        if (yield from source.one_of(",", "]")) == "]":
            return "[" + ",".join(items) + "]"


def _key(source: Source) -> Reading[str]:
    """A key, bare or between marks, and the colon behind it."""
    yield from source.blank()
    if source.text.startswith('"', source.at):
        raw = yield from _plain_text(source)
        key = str(strict_json(raw))
        yield from source.blank()
        yield from source.one_of(":")
        return key
    if source.text.startswith("<", source.at):
        yield from source.one_of(TEXT)
        key = yield from source.until(TEXT, MOST_KEY)
        yield from source.blank()
        yield from source.one_of(":")
        return key
    return key_of((yield from source.until(":", MOST_KEY)))


def _value(source: Source, depth: int, types: Types) -> Reading[str]:
    yield from source.blank()
    if depth == 0 or source.at == len(source.text):
        raise Broken
    match source.text[source.at]:
        case "<":
            yield from source.one_of(TEXT)
            return quoted((yield from source.until(TEXT)))
        case '"':
            return (yield from _plain_text(source))
        case "{":
            source.at += 1
            return (yield from _object(source, depth - 1))
        case "[":
            source.at += 1
            return (yield from _list(source, depth - 1))
        case _:
            return (yield from _word(source, types))


def _plain_text(source: Source) -> Reading[str]:
    """A JSON string as it stands. Raises Broken when it is none."""
    at = source.at
    yield from string_end(source)
    raw = source.text[at : source.at]
    if literal_kind(raw) != "string":
        raise Broken
    return raw


def _word(source: Source, types: Types) -> Reading[str]:
    """A number, true, false or null, else a word, which is a text; a schema of texts alone makes all of them texts."""
    seen = source.at
    while (end := _WORD_END.search(source.text, seen)) is None:
        seen = len(source.text)
        if "<" in source.text[source.at :]:
            raise Broken
        yield from source.more()
    word, source.at = source.text[source.at : end.start()].strip(), end.start()
    if not word or "<" in word or '"' in word:
        raise Broken
    return quoted(word) if types == STRING or literal_kind(word) is None else word
