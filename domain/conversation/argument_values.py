"""Values of a call's arguments that a model wrote as plain text, turned into JSON by the types that a schema takes.

A value keeps the spelling that the model gave it: a number is not read and written anew. Whatever comes, the result is
JSON.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

from tensorfold.domain.conversation.offered_tools import STRING, Types, kind_of

_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
"""Python's spellings beside JSON's: templates that print values with it teach them to models."""
_string = json.JSONEncoder(ensure_ascii=False).encode


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return _string(text)


def escaped(text: str) -> str:
    """A text as the inside of a JSON string: pieces of a text, escaped one by one, make the whole text's."""
    return _string(text)[1:-1]


def typed(text: str, types: Types) -> str:
    """JSON of a value written as text: what `types` take it for, else a string of the text as it is."""
    if types == STRING:
        return quoted(text)
    bare = text.strip()
    literal = _WORDS.get(bare, bare)
    kind = literal_kind(literal)
    if kind is not None and kind != "string" and _takes(types, kind, literal):
        return literal
    return quoted(text)


def literal_kind(text: str) -> str | None:
    """The type of a JSON text; None when it is none."""
    try:
        return kind_of(strict_json(text))
    except (ValueError, RecursionError):
        return None


def strict_json(text: str) -> Any:
    """A parsed JSON text, by the standard alone. Raises ValueError, or RecursionError when it nests too deeply."""
    return json.loads(text, parse_constant=_no_constant)


def _takes(types: Types, kind: str, literal: str) -> bool:
    if kind in types or (kind == "integer" and "number" in types):
        return True
    return kind == "number" and "integer" in types and float(literal).is_integer()


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
