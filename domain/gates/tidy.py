"""A client's schema as a grammar compiler takes it, its meaning unchanged.

Formats that no grammar holds are notes, as JSON Schema has it, and are left out; a count written as 2.0 becomes 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HELD = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"})
_VALUES = frozenset({"const", "enum", "default", "examples", "example"})
"""Keywords whose values are no schemas."""

_COUNTS = frozenset({"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"})


def tidied(schema: Any) -> Any:
    """The schema without what only a reader of its notes needs. Raises RecursionError when it nests too deeply."""
    if isinstance(schema, list):
        return [tidied(part) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {
        key: part if key in _VALUES else _count(part) if key in _COUNTS else tidied(part)
        for key, part in schema.items()
        if key != "format" or not isinstance(part, str) or part in HELD
    }


def _count(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else tidied(value)
