"""The texts of grammars as the library takes them. What can be told wrong without it is refused here."""

from __future__ import annotations

import json
from typing import Any

from tensorfold.adapters.grammar import refusals
from tensorfold.adapters.grammar.limits import MOST_BYTES
from tensorfold.application.ports.checkpoints import RefusedError

WHITESPACE = r"[ \n\r\t]{1,64}"
"""Between the parts of a JSON text: a model that writes blanks cannot go on with them for ever."""


def source_of(library: Any, kind: str, text: str) -> str:
    """The library's form of a grammar. Raises RefusedError."""
    if kind not in refusals.NAMES:
        raise RefusedError(f"No grammar of the kind {kind!r:.40} is known; give one of {', '.join(refusals.NAMES)}.")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise RefusedError(f"The {refusals.NAMES[kind]} holds half a character.") from None
    if size > MOST_BYTES:
        raise RefusedError(refusals.too_long(kind, size))
    match kind:
        case "json_schema":
            return _json_schema(library, text)
        case "regex":
            return str(library.LLMatcher.grammar_from_regex(text))
        case "choices":
            return str(library.LLMatcher.grammar_from_lark(_choices(text)))
        case _:
            return str(library.LLMatcher.grammar_from_lark(text))


def _json_schema(library: Any, text: str) -> str:
    try:
        schema = json.loads(text)
        if schema is False:
            raise RefusedError(refusals.nothing_fits("json_schema"))
        if schema is True:
            text, schema = "{}", {}
        if not isinstance(schema, dict):
            raise ValueError("a schema is an object or a boolean")
        # Options that a schema may carry for the library are the client's wish for another grammar language: refused.
        if "x-guidance" in schema:
            raise ValueError("options of the library")
        if "draft-0" in str(schema.get("$schema", "")) and _renamed_beside_reference(schema):
            raise RefusedError(
                "The JSON schema has an `$id` beside a `$ref`, which its draft reads in a way of its own."
            )
        made = library.LLMatcher.grammar_from_json_schema(text, overrides={"whitespace_pattern": WHITESPACE})
    except (ValueError, RecursionError):
        raise RefusedError(refusals.malformed("json_schema")) from None
    return str(made)


def _renamed_beside_reference(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_renamed_beside_reference, schema))
    if not isinstance(schema, dict):
        return False
    both = isinstance(schema.get("$id"), str) and isinstance(schema.get("$ref"), str)
    return both or any(map(_renamed_beside_reference, schema.values()))


def _choices(text: str) -> str:
    try:
        choices = json.loads(text)
    except (ValueError, RecursionError):
        choices = None
    if not isinstance(choices, list) or not choices or not all(isinstance(c, str) and c for c in choices):
        raise RefusedError("The list of choices must hold at least one string, and no empty one.")
    return "start: " + " | ".join(json.dumps(choice, ensure_ascii=False) for choice in dict.fromkeys(choices))
