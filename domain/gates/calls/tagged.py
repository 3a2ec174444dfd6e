"""Calls whose parameters stand between tags: the value of a text as it is, any other as JSON.

A text may hold any markup but the tags that could end it, so that the reader finds the end where the grammar had it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.domain.conversation.dialects.dialect import MOST_KEY
from tensorfold.domain.conversation.offered_tools import Tool
from tensorfold.domain.gates.calls.lark import Lark, UnheldError, either, literal
from tensorfold.domain.gates.calls.patterns import bounded_text, escaped, may_be_empty
from tensorfold.domain.gates.calls.schemas import (
    Schema,
    alternatives,
    fixed_values,
    is_free,
    parameters,
    resolved,
    standing_alone,
)


@dataclass(frozen=True, slots=True)
class Tags:
    """How one dialect writes a call: parts are marks, which may be tokens, and texts between them.

    `begin` and `end` stand around a call's parameters, `before` in front of a key, `between` a key and its value,
    `after` behind a value; `NAME` in them is the tool's. `kept_out` are beginnings of tags that no value may hold.
    """

    begin: Sequence[str]
    end: Sequence[str]
    before: Sequence[str]
    between: Sequence[str]
    after: Sequence[str]
    kept_out: Sequence[str]


NAME = "\0name"
FUNCTION_PARAMETERS = Tags(
    begin=("<tool_call>", "\n<function=", NAME, ">\n"),
    end=("</function>\n", "</tool_call>"),
    before=("<parameter=",),
    between=(">\n",),
    after=("\n</parameter>\n",),
    kept_out=("</parameter", "</function"),
)
ARG_KEY_VALUE = Tags(
    begin=("<tool_call>", NAME, "\n"),
    end=("</tool_call>",),
    before=("<arg_key>",),
    between=("</arg_key>", "\n", "<arg_value>"),
    after=("</arg_value>", "\n"),
    kept_out=("</arg_value",),
)


def tagged_call(lark: Lark, tags: Tags, tool: Tool) -> str:
    """The body of one call. Raises UnheldError when a grammar cannot hold its parameters."""
    _check_name(tool.name)
    root = tool.schema
    parts = [_written(lark, tags.begin, tool.name)]
    for each in parameters(resolved(root, root), root):
        _check_name(each.name)
        key = f"{_written(lark, tags.before)} {literal(each.name)} {_written(lark, tags.between)}"
        member = lark.rule(f"{key} {_value(lark, tags, each.schema, root)}")
        parts.append(member if each.required else f"{member}?")
    parts.append(_written(lark, tags.end))
    return lark.rule(" ".join(parts))


def _written(lark: Lark, parts: Sequence[str], name: str = "") -> str:
    return " ".join(literal(name) if part == NAME else lark.mark(part) for part in parts)


def _value(lark: Lark, tags: Tags, schema: Schema, root: Schema) -> str:
    """A value and what stands behind it."""
    after = _written(lark, tags.after)
    return either([_form(lark, tags, form, root, after) for form in alternatives(schema, root)])


def _form(lark: Lark, tags: Tags, schema: Schema, root: Schema, after: str) -> str:
    values = fixed_values(schema)
    if values is not None:
        return f"{either([_fixed(tags, value) for value in values])} {after}"
    if schema.get("type") == "string" or is_free(schema):
        return _text(lark, tags, schema, after)
    return f"{lark.json(standing_alone(schema, root))} {after}"


def _fixed(tags: Tags, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    if any(tag in text for tag in tags.kept_out):
        raise UnheldError("a fixed value that holds this model's markup of calls cannot be held")
    return literal(text)


def _text(lark: Lark, tags: Tags, schema: Mapping[str, Any], after: str) -> str:
    body = bounded_text(schema, tags.kept_out)
    if lark.is_token(tags.after[0]):
        return f"{lark.terminal(body)}{'?' if may_be_empty(schema) else ''} {after}"
    # One terminal with the closing tag: a text of its own would swallow the tag's beginning.
    return lark.terminal(f"({body}) /{escaped(''.join(tags.after))}/")


def _check_name(name: str) -> None:
    if not name or name != name.strip() or any(c in name for c in "<>\n") or len(name) > MOST_KEY:
        raise UnheldError(f"the name {name[:40]!r} cannot be written in this model's form of calls")
