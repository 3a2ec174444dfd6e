"""Texts that a schema bounds, as terminals: patterns in the form that JSON Schema has, lengths, and what is kept out.

A pattern matches anywhere in a text unless it is anchored, and its `\\d` is a digit of ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorfold.domain.gates.calls.lark import UnheldError

ANYTHING = "/(?s:.*)/"


def bounded_text(schema: Mapping[str, Any], without: Sequence[str]) -> str:
    """The body of a terminal: a text of this schema that holds none of the texts of `without`."""
    parts = [ANYTHING]
    least, most = schema.get("minLength"), schema.get("maxLength")
    if least is not None or most is not None:
        parts = [f"/(?s:.{{{_count(least) if least else 0},{'' if most is None else _count(most)}}})/"]
    if "pattern" in schema:
        parts.append(f"/{searched(str(schema['pattern']))}/")
    parts += [f"~/(?s:.*){escaped(text)}(?s:.*)/" for text in without]
    return " & ".join(parts)


def may_be_empty(schema: Mapping[str, Any]) -> bool:
    """Whether the empty text is certain to be one of the schema."""
    return not schema.get("minLength") and "pattern" not in schema


def escaped(text: str) -> str:
    """A text as a regular expression inside slashes."""
    return "".join(c if c.isalnum() or c in " _" or ord(c) > 127 else f"\\x{ord(c):02x}" for c in text)


def searched(pattern: str) -> str:
    """An expression of whole texts in which `pattern` is found. Raises UnheldError for anchors inside it."""
    body, branches = _plain(pattern.removeprefix("^"))
    begins, ends = pattern.startswith("^"), body.endswith("$") and not _is_escaped(body)
    body = body[:-1] if ends else body
    if (branches and (begins or ends)) or _anchors(body):
        raise UnheldError("a pattern with anchors inside it cannot be held")
    return f"{'' if begins else '(?s:.*)'}(?:{body}){'' if ends else '(?s:.*)'}"


def _is_escaped(body: str) -> bool:
    """Whether the last character is escaped."""
    before = body[:-1]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _plain(pattern: str) -> tuple[str, bool]:
    """A pattern with its slashes and line breaks escaped and digits of ASCII; whether it has branches at its top."""
    out, depth, inside, branches, at = [], 0, False, False, 0
    while at < len(pattern):
        c = pattern[at]
        if c == "\\" and at + 1 < len(pattern):
            pair = pattern[at : at + 2]
            digits = "0-9" if inside else "[0-9]"
            out.append(digits if pair == "\\d" else "\\x2f" if pair == "\\/" else pair)
            at += 2
            continue
        if inside:
            inside = c != "]"
        else:
            inside = c == "["
            depth += (c == "(") - (c == ")")
            branches = branches or (c == "|" and depth == 0)
        out.append({"/": "\\x2f", "\n": "\\n", "\r": "\\r"}.get(c, c))
        at += 1
    return "".join(out), branches


def _anchors(body: str) -> bool:
    inside = escape = False
    for c in body:
        if escape:
            escape = False
        elif c == "\\":
            escape = True
        elif inside:
            inside = c != "]"
        elif c == "[":
            inside = True
        elif c in "^$":
            return True
    return False


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
        raise UnheldError("a length must be a whole number of 0 or more")
    return int(value)
