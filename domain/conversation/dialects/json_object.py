"""Calls as JSON: `<tool_call>\\n{"name": NAME, "arguments": {...}}\\n</tool_call>`.

The call arrives whole: JSON is broken until its last brace. The arguments keep the spelling that the model gave them.
"""

from __future__ import annotations

import json
import re

from tensorfold.domain.conversation.argument_values import strict_json
from tensorfold.domain.conversation.dialects.dialect import Broken, Reading, Source, offered, whole
from tensorfold.domain.conversation.offered_tools import OfferedTools

_STRING_STOP = re.compile(r'["\\\n]')
_STRUCTURE = re.compile(r'["{}\[\]<]')
_BLANKS = re.compile(r"[ \t\r\n]*")
_decode = json.JSONDecoder().raw_decode


class JsonObject:
    """An object with a name and its arguments."""

    name = "json"
    opener = "<tool_call>"
    bare_opener = ""
    marks = ("<tool_call>", "</tool_call>")

    def read(self, source: Source, tools: OfferedTools) -> Reading[None]:
        """One call behind `<tool_call>`."""
        yield from source.blank()
        at = source.at
        yield from _balanced(source)
        text = source.text[at : source.at]
        yield from source.closing("</tool_call>")
        members = _members(text)
        try:
            tool = offered(tools, strict_json(members["name"]))
            raw = members.get("arguments", members.get("parameters", "{}"))
            arguments = strict_json(raw)
            if isinstance(arguments, str):
                raw, arguments = arguments, strict_json(arguments)
        except (KeyError, TypeError, ValueError, RecursionError):
            raise Broken from None
        if not isinstance(arguments, dict):
            raise Broken
        yield from whole(tool.name, raw.strip())

    def shows(self, text: str, tool: str) -> bool:
        """By the name inside the object."""
        return re.search(rf'<tool_call>\s*\{{\s*"name"\s*:\s*"{re.escape(tool)}"', text) is not None


def _balanced(source: Source) -> Reading[None]:
    """Read past an object. Raises Broken at what cannot stand in one."""
    yield from source.one_of("{")
    depth = 1
    while depth:
        found = _STRUCTURE.search(source.text, source.at)
        if found is None:
            source.at = len(source.text)
            yield from source.more()
            continue
        source.at = found.start()
        match found[0]:
            case '"':
                yield from string_end(source)
            case "<":
                raise Broken
            case bracket:
                depth += 1 if bracket in "{[" else -1
                source.at += 1


def string_end(source: Source) -> Reading[None]:
    """Read past a JSON string that begins here. Raises Broken at a line break, which JSON does not have in strings."""
    source.at += 1
    while True:
        found = _STRING_STOP.search(source.text, source.at)
        if found is None:
            source.at = len(source.text)
            yield from source.more()
        elif found[0] == "\n":
            raise Broken
        elif found[0] == '"':
            source.at = found.end()
            return
        else:
            source.at = found.end() + 1
            while source.at > len(source.text):
                yield from source.more()


def _members(text: str) -> dict[str, str]:
    """The raw values of an object by their keys. Raises Broken when it is no JSON."""
    try:
        strict_json(text)
    except (ValueError, RecursionError):
        raise Broken from None
    members: dict[str, str] = {}
    at = _blank(text, 1)
    while text[at] != "}":
        key, at = _decode(text, at)
        at = _blank(text, _blank(text, at) + 1)
        begin = at
        _, at = _decode(text, at)
        members[key] = text[begin:at]
        at = _blank(text, at)
        if text[at] == ",":
            at = _blank(text, at + 1)
    return members


def _blank(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()
