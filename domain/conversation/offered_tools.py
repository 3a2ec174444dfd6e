"""The tools of a request as a reply's reader needs them: offered names, and the JSON types that each parameter takes.

Schemas come from the client and are read, never trusted: what cannot be understood says nothing of a type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Types = frozenset[str]
"""Names of JSON types, as schemas have them."""

STRING: Types = frozenset({"string"})
ANY: Types = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_DEPTH = 16


@dataclass(frozen=True, slots=True)
class Tool:
    """One function: its name and the schema of its arguments."""

    name: str
    schema: Mapping[str, Any]

    def types(self, parameter: str, undeclared: Types = STRING) -> Types:
        """Types that a parameter takes: any where its schema names none, `undeclared` where there is none for it."""
        properties = self.schema.get("properties")
        if isinstance(properties, Mapping) and parameter in properties:
            return _types(properties[parameter], self.schema, _DEPTH) or ANY
        rest = self.schema.get("additionalProperties")
        return (_types(rest, self.schema, _DEPTH) or undeclared) if isinstance(rest, Mapping) else undeclared


class OfferedTools:
    """Tools by name; of two with one name the first counts."""

    __slots__ = ("_by_name", "longest_name")

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """`tools` have the nested form: `{"type": "function", "function": {"name", "parameters"}}`."""
        self._by_name: dict[str, Tool] = {}
        for tool in tools:
            function = tool.get("function")
            function = function if isinstance(function, Mapping) else tool
            name, schema = function.get("name"), function.get("parameters")
            if isinstance(name, str):
                self._by_name.setdefault(name, Tool(name, schema if isinstance(schema, Mapping) else {}))
        self.longest_name = max(map(len, self._by_name), default=0)

    @property
    def names(self) -> Sequence[str]:
        """The offered names, in the request's order."""
        return tuple(self._by_name)

    def get(self, name: str) -> Tool | None:
        """The tool of that name, None when it is not offered."""
        return self._by_name.get(name)


def _types(schema: Any, root: Mapping[str, Any], depth: int) -> Types:
    """Types that a schema names; empty when it names none."""
    if not isinstance(schema, Mapping) or depth == 0:
        return frozenset()
    named = _named(schema)
    for key in ("anyOf", "oneOf"):
        if not named and isinstance(branches := schema.get(key), Sequence) and not isinstance(branches, str):
            named = frozenset().union(*(_types(branch, root, depth - 1) for branch in branches[:64]))
    if not named and isinstance(parts := schema.get("allOf"), Sequence) and not isinstance(parts, str):
        named = next((found for part in parts[:64] if (found := _types(part, root, depth - 1))), named)
    if not named and isinstance(schema.get("$ref"), str):
        named = _types(referred(schema["$ref"], root), root, depth - 1)
    return named | {"null"} if named and schema.get("nullable") is True else named


def _named(schema: Mapping[str, Any]) -> Types:
    kind = schema.get("type")
    kinds = [kind] if isinstance(kind, str) else kind if isinstance(kind, list | tuple) else []
    named = frozenset(kind.lower() for kind in kinds if isinstance(kind, str)) & ANY
    if named:
        return named
    values = schema["enum"] if isinstance(schema.get("enum"), list | tuple) else []
    values = [schema["const"]] if "const" in schema else values
    return frozenset(kind_of(value) for value in values)


def referred(path: str, root: Mapping[str, Any]) -> Any:
    """What a reference inside the same schema means; None for any other."""
    if not path.startswith("#/"):
        return None
    found: Any = root
    for step in path[2:].split("/"):
        if not isinstance(found, Mapping):
            return None
        found = found.get(step.replace("~1", "/").replace("~0", "~"))
    return found


def kind_of(value: Any) -> str:
    """The JSON type of a parsed value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case _:
            return "object"
