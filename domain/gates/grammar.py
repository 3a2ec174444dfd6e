"""A grammar that a reply is held to, as a value: its kind and its text. Compiling it is an adapter's matter."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tensorfold.domain.gates.tidy import tidied


class GrammarKind(StrEnum):
    """What a grammar's text is."""

    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    CHOICES = "choices"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class Grammar:
    """`text` as `kind` has it: a JSON Schema, a regular expression of the whole reply, a JSON list of strings, Lark."""

    kind: GrammarKind
    text: str


def json_schema(schema: Any) -> Grammar:
    """Replies that are JSON of this schema (parsed)."""
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(tidied(schema)))


def any_object() -> Grammar:
    """Replies that are a JSON object."""
    return json_schema({"type": "object"})


def choices(texts: Sequence[str]) -> Grammar:
    """Replies that are one of these texts."""
    return Grammar(GrammarKind.CHOICES, json.dumps(list(texts)))
