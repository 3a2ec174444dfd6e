"""Formats of texts in a schema: those that a grammar can hold are kept, all others are notes, as JSON Schema has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HELD = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"})
_VALUES = frozenset({"const", "enum", "default", "examples", "example"})
"""Keywords whose values are no schemas."""


def held_formats(schema: Any) -> Any:
    """A schema without the formats that no grammar holds. Raises RecursionError for one that nests too deeply."""
    if isinstance(schema, list):
        return [held_formats(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: part if key in _VALUES else held_formats(part)
        for key, part in schema.items()
        if key != "format" or not isinstance(part, str) or part in HELD
    }
