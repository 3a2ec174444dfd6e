"""Calls as objects with bare keys, texts between marks of their own: Gemma 4's form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tensorfold.domain.conversation.dialects.gemma4 import TEXT
from tensorfold.domain.conversation.offered_tools import Tool
from tensorfold.domain.gates.calls.lark import Lark, UnheldError, either, literal
from tensorfold.domain.gates.calls.patterns import bounded_text, escaped, may_be_empty
from tensorfold.domain.gates.calls.schemas import Parameter, Schema, alternatives, fixed_values, parameters, resolved

_DEPTH = 8
_SCALARS = ("integer", "number", "boolean", "null")
_MOST_ITEMS = 64
_BARE = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"


def gemma_call(lark: Lark, tool: Tool) -> str:
    """The body of one call. Raises UnheldError when a grammar cannot hold its arguments."""
    _check_key(tool.name)
    root = tool.schema
    arguments = _object(lark, parameters(resolved(root, root), root), root, _DEPTH)
    opener, closer = lark.mark("<|tool_call>"), lark.mark("<tool_call|>")
    return lark.rule(f"{opener} {literal(f'call:{tool.name}')} {arguments} {closer}")


def _object(lark: Lark, members: Sequence[Parameter], root: Schema, depth: int) -> str:
    """Members in their order, commas between those that are there."""
    written = []
    for each in members:
        _check_key(each.name)
        written.append(lark.rule(f"{literal(each.name + ':')} {_value(lark, each.schema, root, depth)}"))
    rest = [""] * (len(members) + 1)
    for at in reversed(range(len(members))):
        this = f'("," {written[at]})' + ("" if members[at].required else "?")
        rest[at] = lark.rule(f"{this} {rest[at + 1]}".strip())
    firsts = []
    for at, each in enumerate(members):
        firsts.append(f"{written[at]} {rest[at + 1]}".strip())
        if each.required:
            break
    else:
        return lark.rule(f'"{{" ({" | ".join(firsts)})? "}}"') if firsts else '"{}"'
    return lark.rule(f'"{{" ({" | ".join(firsts)}) "}}"')


def _value(lark: Lark, schema: Schema, root: Schema, depth: int) -> str:
    if depth == 0:
        raise UnheldError(f"arguments nested more than {_DEPTH} deep cannot be held in this model's form of calls")
    return either([_form(lark, form, root, depth) for form in alternatives(schema, root)])


def _form(lark: Lark, schema: Schema, root: Schema, depth: int) -> str:
    values = fixed_values(schema)
    if values is not None:
        return either([_fixed(lark, value) for value in values])
    kind = schema.get("type")
    if kind == "string":
        return _text(lark, schema)
    if kind in _SCALARS:
        return lark.json(schema)
    if kind == "array":
        return _list(lark, schema, root, depth)
    if kind == "object" or "properties" in schema:
        members = parameters(schema, root)
        return _object(lark, members, root, depth - 1) if members or _closed(schema) else _any_object(lark)
    if kind is not None:
        raise UnheldError(f"the type {str(kind)[:40]!r} cannot be held")
    return _anything(lark)


def _closed(schema: Schema) -> bool:
    return schema.get("additionalProperties") is False


def _list(lark: Lark, schema: Schema, root: Schema, depth: int) -> str:
    if refused := [key for key in ("prefixItems", "contains", "uniqueItems", "unevaluatedItems") if schema.get(key)]:
        raise UnheldError(f"`{refused[0]}` cannot be held in this model's form of calls")
    least, most = schema.get("minItems", 0), schema.get("maxItems", _MOST_ITEMS)
    if not isinstance(least, int) or not isinstance(most, int) or least > most or least < 0:
        raise UnheldError("`minItems` and `maxItems` must be whole numbers, the first no more than the second")
    if most == 0:
        return '"[]"'
    item = lark.rule(_value(lark, resolved(schema.get("items", True), root), root, depth - 1))
    filled = f'"[" {item} ("," {item}){{{max(least - 1, 0)},{max(most, 1) - 1}}} "]"'
    return lark.rule(filled if least else f'"[]" | {filled}')


def _text(lark: Lark, schema: Schema) -> str:
    mark, body = lark.mark(TEXT), bounded_text(schema, (TEXT,))
    if lark.is_token(TEXT):
        return f"{mark} {lark.terminal(body)}{'?' if may_be_empty(schema) else ''} {mark}"
    return f"{mark} {lark.terminal(f'({body}) /{escaped(TEXT)}/')}"


def _fixed(lark: Lark, value: Any) -> str:
    if isinstance(value, list | dict):
        raise UnheldError("a fixed value that is a list or an object cannot be held in this model's form of calls")
    if not isinstance(value, str):
        return literal(json.dumps(value))
    if TEXT in value:
        raise UnheldError("a fixed value that holds this model's markup of calls cannot be held")
    mark = lark.mark(TEXT)
    return f"{mark} {literal(value)} {mark}" if value else f"{mark} {mark}"


def _anything(lark: Lark) -> str:
    """A text, a number, a truth or nothing."""
    return either([_text(lark, {}), lark.json({"type": list(_SCALARS)})])


def _any_object(lark: Lark) -> str:
    """Bare keys with values of no depth."""
    member = lark.rule(f'{lark.terminal(_BARE)} ":" {_anything(lark)}')
    return lark.rule(f'"{{" ({member} ("," {member}){{0,{_MOST_ITEMS - 1}}})? "}}"')


def _check_key(name: str) -> None:
    if not name or name != name.strip() or any(c in name for c in '<>\n:{}[],"'):
        raise UnheldError(f"the name {name[:40]!r} cannot be written in this model's form of calls")
