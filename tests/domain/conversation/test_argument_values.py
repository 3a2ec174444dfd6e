"""Values that a model wrote as text become what the schema takes, in the model's own spelling, and always JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.conversation.argument_values import escaped, typed
from tensorfold.domain.conversation.offered_tools import ANY, STRING, OfferedTools


def types(schema: Any, **more: Any) -> frozenset[str]:
    parameters = {"type": "object", "properties": {"p": schema}} | more
    tool = OfferedTools([{"type": "function", "function": {"name": "f", "parameters": parameters}}]).get("f")
    assert tool is not None
    return tool.types("p")


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"integer", "null"}),
        ({"type": "OBJECT"}, {"object"}),
        ({"anyOf": [{"type": "object"}, {"type": "null"}]}, {"object", "null"}),
        ({"oneOf": [{"type": "array"}, {"anyOf": [{"type": "string"}]}]}, {"array", "string"}),
        ({"allOf": [{"description": "x"}, {"type": "number"}]}, {"number"}),
        ({"enum": ["a", 1, 2.5, None, True, [1], {}]}, ANY),
        ({"enum": ["a", "b"]}, {"string"}),
        ({"const": 5}, {"integer"}),
        ({"type": "integer", "nullable": True}, {"integer", "null"}),
        ({"$ref": "#/$defs/Deep"}, {"boolean"}),
        ({"$ref": "#/properties/p"}, ANY),
        ({"$ref": "https://example.org/x"}, ANY),
        ({"description": "x"}, ANY),
        ({}, ANY),
        (True, ANY),
        ({"type": 5, "anyOf": "x", "enum": "y"}, ANY),
        ({"type": "owl"}, ANY),
    ],
)
def test_a_schema_names_the_types_that_a_parameter_takes(schema: Any, named: Any) -> None:
    assert types(schema, **{"$defs": {"Deep": {"type": "boolean"}}}) == frozenset(named)


def test_a_parameter_without_a_schema_is_a_text_unless_further_ones_have_one() -> None:
    tools = OfferedTools(
        [
            {"name": "flat", "parameters": {"additionalProperties": {"type": "integer"}}},
            {"type": "function", "function": {"name": "bare"}},
            {"type": "function", "function": {"name": "bare", "parameters": {"properties": {"p": {"type": "null"}}}}},
        ]
    )
    flat, bare = tools.get("flat"), tools.get("bare")
    assert flat is not None
    assert bare is not None
    assert (flat.types("p"), bare.types("p"), bare.types("p", ANY)) == (frozenset({"integer"}), STRING, ANY)
    assert (tools.get("none"), tools.longest_name) == (None, 4)


@pytest.mark.parametrize(
    ("text", "named", "json_text"),
    [
        ("5", {"string"}, '"5"'),
        (" null\n", {"string"}, '" null\\n"'),
        ("5", {"integer"}, "5"),
        (" 5 ", {"integer"}, "5"),
        ("5.0", {"integer"}, "5.0"),
        ("5.5", {"integer"}, '"5.5"'),
        ("five", {"integer"}, '"five"'),
        ('"5"', {"integer"}, '"\\"5\\""'),
        ("1e999", {"number"}, "1e999"),
        ("1e999", {"integer"}, '"1e999"'),
        ("1.10", {"number"}, "1.10"),
        ("3", {"number"}, "3"),
        ("NaN", {"number"}, '"NaN"'),
        ("0x10", {"number"}, '"0x10"'),
        ("9" * 5000, {"integer"}, '"' + "9" * 5000 + '"'),
        ("true", {"boolean"}, "true"),
        ("False", {"boolean"}, "false"),
        ("yes", {"boolean"}, '"yes"'),
        ("1", {"boolean"}, '"1"'),
        ("None", {"null", "object"}, "null"),
        ("null", {"string", "null"}, "null"),
        ("nothing", {"string", "null"}, '"nothing"'),
        ('{"a": [1, {}]}', {"object"}, '{"a": [1, {}]}'),
        ("{'a': 1}", {"object"}, "\"{'a': 1}\""),
        ("[1]", {"object"}, '"[1]"'),
        ("[" * 100_000, {"array"}, '"' + "[" * 100_000 + '"'),
        ("[" * 100_000 + "]" * 100_000, {"array"}, '"' + "[" * 100_000 + "]" * 100_000 + '"'),
        ("[1,]", {"array"}, '"[1,]"'),
        ('say "hi"', ANY, '"say \\"hi\\""'),
        ('"quoted"', ANY, '"\\"quoted\\""'),
        ("7", ANY, "7"),
        ("", {"integer"}, '""'),
    ],
)
def test_a_value_is_what_the_types_take_it_for_else_a_text(text: str, named: Any, json_text: str) -> None:
    assert typed(text, frozenset(named)) == json_text


@settings(derandomize=True, deadline=None)
@given(st.text(), st.sets(st.sampled_from(sorted(ANY))))
@pytest.mark.slow
def test_whatever_is_written_is_json_and_a_text_is_never_changed(text: str, named: set[str]) -> None:
    value = json.loads(typed(text, frozenset(named)))
    if named <= {"string"} and named:
        assert value == text
    if isinstance(value, str):
        assert value == text


@settings(derandomize=True, deadline=None)
@given(st.lists(st.text()))
@pytest.mark.slow
def test_escaped_pieces_make_the_escaped_whole(pieces: list[str]) -> None:
    assert "".join(map(escaped, pieces)) == escaped("".join(pieces))
    assert json.loads('"' + "".join(map(escaped, pieces)) + '"') == "".join(pieces)
