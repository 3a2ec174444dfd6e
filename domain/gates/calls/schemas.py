"""What a grammar of calls reads of a tool's schema: its parameters in order, and the forms that one value may take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.domain.conversation.offered_tools import referred
from tensorfold.domain.gates.calls.lark import UnheldError

Schema = Mapping[str, Any]

_SHARED = ("$defs", "definitions")
_LOOSE = ("anyOf", "oneOf", "allOf", "not", "if", "patternProperties", "propertyNames", "minProperties",
          "dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties")  # fmt: skip
_NOTES = frozenset({"description", "title", "default", "examples", "example", "deprecated", "$comment", "format"})
_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a tool, or one member of an object."""

    name: str
    schema: Schema
    required: bool


def resolved(schema: Any, root: Schema) -> Schema:
    """A schema behind its references into `root`. Raises UnheldError for one that leads nowhere."""
    for _ in range(_DEPTH):
        if schema is True:
            return {}
        if not isinstance(schema, Mapping):
            break
        if isinstance(schema.get("$ref"), str):
            beside = {key: value for key, value in schema.items() if key != "$ref"}
            schema = referred(schema["$ref"], root)
            if beside.keys() - _NOTES:
                raise UnheldError("a `$ref` with rules beside it cannot be held")
            continue
        parts = schema.get("allOf")
        if isinstance(parts, list) and len(parts) == 1 and not (schema.keys() - {"allOf"} - _NOTES):
            schema = parts[0]
            continue
        return schema
    raise UnheldError("a schema that is no object, or a `$ref` that leads nowhere, cannot be held")


def parameters(schema: Schema, root: Schema) -> list[Parameter]:
    """The members of an object's schema, in its order; required ones that it does not describe come last.

    Raises UnheldError for rules over the object that a fixed order of its members cannot keep.
    """
    if loose := [key for key in _LOOSE if key in schema]:
        raise UnheldError(f"`{loose[0]}` over the members of an object cannot be held in this model's form of calls")
    # Clients write what is empty as null, or as a list where they know no other container.
    kinds = schema.get("type") or "object"
    properties, needed = schema.get("properties") or {}, schema.get("required") or []
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        raise UnheldError("a `type` that is no object has no members")
    if not isinstance(properties, Mapping):
        raise UnheldError("`properties` that are no object cannot be held")
    if not isinstance(needed, list) or not all(isinstance(name, str) for name in needed):
        raise UnheldError("`required` that is no list of names cannot be held")
    names = dict.fromkeys([*properties, *needed])
    return [Parameter(name, resolved(properties.get(name, True), root), name in needed) for name in names]


def alternatives(schema: Schema, root: Schema) -> list[Schema]:
    """The forms of a value, each of one type, of fixed values, or of any type."""
    branches = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), None)
    if branches is not None and not schema.keys() - {"anyOf", "oneOf"} - _NOTES - {"type"}:
        return [form for branch in branches[:64] for form in alternatives(resolved(branch, root), root)]
    if schema.get("nullable") is True:
        rest = {key: value for key, value in schema.items() if key != "nullable"}
        return [*alternatives(rest, root), {"type": "null"}]
    kinds = schema.get("type")
    if isinstance(kinds, list) and "enum" not in schema and "const" not in schema:
        return [{**schema, "type": kind} for kind in kinds]
    return [schema]


def fixed_values(schema: Schema) -> Sequence[Any] | None:
    """The values of an `enum` or a `const`; None where there is neither. Raises UnheldError for no values at all."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    if "enum" in schema and not (isinstance(values, list) and values):
        raise UnheldError("an `enum` that is no list of values cannot be held")
    return values


def is_free(schema: Schema) -> bool:
    """Whether a schema says nothing of a value."""
    return not schema.keys() - _NOTES


def standing_alone(schema: Schema, root: Schema) -> Schema:
    """A part of a schema with what its references need. Raises UnheldError for references to elsewhere."""
    shared = {key: root[key] for key in _SHARED if key in root}
    if not _refers_to_shared(schema) or not _refers_to_shared(shared):
        raise UnheldError("a `$ref` to anything but `$defs` or `definitions` cannot be held")
    return {**shared, **schema}


def _refers_to_shared(schema: Any) -> bool:
    if isinstance(schema, Mapping):
        to = schema.get("$ref")
        if isinstance(to, str) and not to.startswith(tuple(f"#/{key}/" for key in _SHARED)):
            return False
        return all(_refers_to_shared(part) for part in schema.values())
    return all(map(_refers_to_shared, schema)) if isinstance(schema, list) else True
