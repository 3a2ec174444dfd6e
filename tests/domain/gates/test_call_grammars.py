"""What of a tool's schema a grammar of calls can hold, and how what it cannot is told."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tensorfold.domain.conversation.offered_tools import Tool
from tensorfold.domain.gates.calls import UnheldError, calls_grammar
from tensorfold.domain.gates.calls.patterns import escaped, searched
from tensorfold.domain.gates.calls.schemas import alternatives, parameters, resolved
from tensorfold.domain.gates.tidy import tidied

DEEP = {"type": "object", "properties": {"x": {"$ref": "#/$defs/d"}}}


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        ("^a+$", "aa", "ba"),
        ("b", "abc", "ac"),
        ("^a|b$", None, None),
        ("a|b", "xbx", "c"),
        ("^(a|b)$", "b", "ab"),
        (r"^[\d/]+$", "1/2", "x"),
        (r"a\$", "xa$x", "a"),
        (r"\$$", "a$", "$a"),
        ("[$^]", "a^", "a"),
        ("a$b", None, None),
    ],
)
def test_a_pattern_is_searched_unless_it_is_anchored(pattern: str, good: str | None, bad: str | None) -> None:
    if good is None or bad is None:
        with pytest.raises(UnheldError, match="anchors"):
            searched(pattern)
        return
    whole = re.compile(searched(pattern))
    assert whole.fullmatch(good) and not whole.fullmatch(bad)
    assert "/" not in whole.pattern


def test_an_escaped_text_matches_itself_alone() -> None:
    text = 'a </b>.*"\\\n[é]'
    assert re.fullmatch(escaped(text), text)
    assert not re.fullmatch(escaped(text), text.replace(".", "x"))


def test_parameters_keep_their_order_and_required_ones_without_a_schema_come_last() -> None:
    schema = {"properties": {"b": {"type": "integer"}, "a": True}, "required": ["z", "a"]}
    assert [(p.name, p.schema, p.required) for p in parameters(schema, schema)] == [
        ("b", {"type": "integer"}, False),
        ("a", {}, True),
        ("z", {}, True),
    ]


def test_forms_of_a_value_are_told_apart() -> None:
    root: dict[str, Any] = {"$defs": {"n": {"type": ["integer", "null"]}, "loop": {"$ref": "#/$defs/loop"}}}
    assert alternatives({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/n"}], "title": "x"}, root) == [
        {"type": "string"},
        {"type": "integer"},
        {"type": "null"},
    ]
    assert alternatives({"type": "string", "nullable": True}, root) == [{"type": "string"}, {"type": "null"}]
    assert resolved({"allOf": [{"$ref": "#/$defs/n"}], "description": "x"}, root) == root["$defs"]["n"]
    for lost in ({"$ref": "#/$defs/loop"}, {"$ref": "#/nowhere"}, {"$ref": "#/$defs/n", "minimum": 1}, 5):
        with pytest.raises(UnheldError):
            resolved(lost, root)


@pytest.mark.parametrize(
    ("dialect", "name", "schema", "said"),
    [
        ("function_parameters", "f", {"properties": {"a>b": {}}}, "cannot be written"),
        ("function_parameters", "f<", {}, "cannot be written"),
        ("function_parameters", "f", {"anyOf": [{}]}, "`anyOf`"),
        ("function_parameters", "f", {"properties": {"a": {"const": "</parameter>"}}}, "markup"),
        ("function_parameters", "f", {"properties": {"a": {"type": "string", "minLength": -1}}}, "length"),
        ("function_parameters", "f", {"type": "objekt"}, "`type` that is no object"),
        ("gemma4", "f", {"type": ["string", "null"]}, "`type` that is no object"),
        ("arg_key_value", "f", {"properties": ["a"]}, "`properties` that are no object"),
        ("function_parameters", "f", {"properties": {"a": {}}, "required": "a"}, "`required` that is no list of names"),
        ("gemma4", "f", {"required": [1]}, "`required` that is no list of names"),
        ("gemma4", "f", {"properties": {"a": {"type": "string", "enum": []}}}, "`enum` that is no list of values"),
        ("function_parameters", "f", {"properties": {"a": {"type": "string", "enum": 5}}}, "`enum` that is no list"),
        ("gemma4", "f", {"properties": {"a:b": {}}}, "cannot be written"),
        ("gemma4", "f", {"properties": {"a": {"type": "array", "uniqueItems": True}}}, "`uniqueItems`"),
        ("gemma4", "f", {"properties": {"a": {"enum": [[1]]}}}, "a list or an object"),
        ("gemma4", "f", {"properties": {"a": {"type": "file"}}}, "the type 'file'"),
        ("gemma4", "f", {"properties": {"a": DEEP}, "$defs": {"d": DEEP}}, "nested more than"),
        ("function_parameters", "f", {"properties": {"a": {"items": {"$ref": "#"}}}}, "a `$ref` to anything but"),
        ("no such dialect", "f", {}, "no such dialect"),
    ],
)
def test_what_cannot_be_held_is_told_in_one_sentence(
    dialect: str, name: str, schema: dict[str, Any], said: str
) -> None:
    with pytest.raises(UnheldError) as refused:
        calls_grammar(dialect, [Tool(name, schema)], {})
    message = refused.value.message
    assert said in message and message.endswith(".") and "\n" not in message


def test_formats_that_no_grammar_holds_are_notes() -> None:
    schema = {
        "properties": {"format": {"type": "integer", "format": "int32"}, "at": {"format": "date"}},
        "enum": [{"format": "int32"}],
        "anyOf": [{"format": "path"}],
        "maxItems": 2.0,
    }
    assert tidied(schema) == {
        "properties": {"format": {"type": "integer"}, "at": {"format": "date"}},
        "enum": [{"format": "int32"}],
        "anyOf": [{}],
        "maxItems": 2,
    }
