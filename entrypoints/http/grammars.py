"""The fields that hold a reply to a form, as one grammar: `response_format`, `guided_*` and `structured_outputs`.

Reads the forms of the fields alone: whether a grammar can be held is found when it is compiled.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic_core import PydanticCustomError

from tensorfold.domain.gates.grammar import Grammar, GrammarKind, any_object, choices, json_schema
from tensorfold.entrypoints.http import fields
from tensorfold.entrypoints.http.fields import not_supported, refuse

MAX_CHOICES = 1024
FIELDS = ("response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs")


def read_response_format(value: Any) -> Grammar | None:
    """`text`, `json_object` or `json_schema`; null is `text`."""
    form = fields.mapping(value)
    if form is None or form.get("type") == "text":
        return None
    if form.get("type") == "json_object":
        return any_object()
    if form.get("type") != "json_schema":
        raise refuse('must be "text", "json_object" or "json_schema"', at=("type",))
    described = form.get("json_schema")
    if not isinstance(described, dict):
        raise refuse("must be an object with a schema", at=("json_schema",))
    if not isinstance(schema := described.get("schema", {"type": "object"}), dict):
        raise refuse("must be an object", at=("json_schema", "schema"))
    return json_schema(schema)


def read_json(value: Any) -> Grammar | None:
    """A JSON schema, as an object or as its text."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise refuse("is no JSON") from None
    if not isinstance(value, dict | None):
        raise refuse("must be a JSON schema, an object or its text, or null")
    try:
        return None if value is None else json_schema(value)
    except RecursionError:
        raise refuse("nests too deeply") from None


def read_regex(value: Any) -> Grammar | None:
    """A regular expression of the whole reply."""
    return _text(value, GrammarKind.REGEX)


def read_lark(value: Any) -> Grammar | None:
    """A grammar in Lark's form."""
    return _text(value, GrammarKind.LARK)


def read_choice(value: Any) -> Grammar | None:
    """Texts of which the reply is one."""
    listed = fields.sequence(value)
    if listed is None:
        return None
    if not 1 <= len(listed) <= MAX_CHOICES:
        raise refuse(f"holds {len(listed)} choices; it must be from 1 to {MAX_CHOICES}")
    for index, choice in enumerate(listed):
        if not isinstance(choice, str) or not choice:
            raise refuse("must be a string of at least one character", at=(index,))
    return choices(listed)


def _object(value: Any) -> Grammar | None:
    return any_object() if fields.flag(value) else None


_PARTS: dict[str, Callable[[Any], Grammar | None]] = {
    "json": read_json,
    "regex": read_regex,
    "choice": read_choice,
    "grammar": read_lark,
    "json_object": _object,
}


def read_structured_outputs(value: Any) -> Grammar | None:
    """One of `json`, `regex`, `choice`, `grammar` and `json_object`."""
    asked = {name: part for name, part in (fields.mapping(value) or {}).items() if part not in (None, False)}
    for name in asked:
        if name not in _PARTS:
            raise not_supported(f"asks for {name[:40]!r}, which this server does not offer")
    if len(asked) > 1:
        raise refuse(f"asks for {' and '.join(sorted(asked))}; it must ask for one form")
    for name, part in asked.items():
        try:
            return _PARTS[name](part)
        except PydanticCustomError as wrong:
            context = dict(wrong.context or {})
            context["at"] = (name, *context.get("at", ()))
            raise PydanticCustomError(wrong.type, "{sentence}", context) from None
    return None


def _text(value: Any, kind: GrammarKind) -> Grammar | None:
    text = fields.text(value)
    if text is not None and not text:
        raise refuse("is empty; it needs at least one character")
    return None if text is None else Grammar(kind, text)
