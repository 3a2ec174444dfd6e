"""Forced calls: whatever is drawn from the grammar reads as calls of offered tools, with arguments of their schemas."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from tensorfold.adapters.grammar.compiler import GuidanceCompiler
from tensorfold.domain.conversation.dialects import DIALECTS
from tensorfold.domain.conversation.offered_tools import OfferedTools, Tool
from tensorfold.domain.conversation.reply_reader import CallArguments, CallBegin, CallsWanted, ReplyReader, Said
from tensorfold.domain.gates.calls import calls_grammar
from tests.adapters.grammar.walks import walk
from tests.fakes.tokenizer import FakeTokenizer
from tests.libraries import needs

pytestmark = needs("llguidance", "jsonschema")


PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "n": {"type": ["integer", "null"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FIND = {
    "type": "object",
    "properties": {
        "pattern": {"type": "string", "description": "a glob"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 50},
        "deep": {"type": "boolean"},
        "kind": {"enum": ["file", "dir", 3, None]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "minItems": 1, "maxItems": 3},
        "where": {"anyOf": [{"$ref": "#/$defs/place"}, {"type": "null"}]},
        "code": {"type": "string", "pattern": r"^[A-Z]{2}\d{2}$"},
        "part": {"type": "string", "pattern": "x/y", "minLength": 3, "maxLength": 9},
    },
    "required": ["pattern", "kind", "code"],
    "$defs": {"place": PLACE},
}
SAY = {"type": "object", "properties": {"any": {}, "text": {"type": ["string", "null"]}}, "required": ["any", "more"]}
SCHEMAS: dict[str, Any] = {"find_files": FIND, "now": None, "say": SAY}
OFFERED = OfferedTools([{"function": {"name": n, **({"parameters": s} if s else {})}} for n, s in SCHEMAS.items()])
ENDS = {"function_parameters": ("\n</parameter>\n",), "arg_key_value": ("</arg_value>\n",), "gemma4": ('<|"|>',)}


def tools(*names: str) -> list[Tool]:
    return [tool for name in names if (tool := OFFERED.get(name)) is not None]


def read(dialect: str, tokenizer: FakeTokenizer, ids: Sequence[int]) -> list[tuple[str, Any]]:
    """The calls of a reply that must hold nothing else."""
    shown = replace(tokenizer.token_bytes, special=frozenset({tokenizer.end_id}))
    reader = ReplyReader(shown, (), None, CallsWanted(DIALECTS[dialect], OFFERED))
    calls: list[list[str]] = []
    for part in reader.feed(ids) + reader.finish():
        match part:
            case CallBegin(_, name):
                calls.append([name, ""])
            case CallArguments(index, text):
                calls[index][1] += text
            case Said(text):
                assert not text.strip(), tokenizer.decode(ids)
    assert reader.whole_calls == len(calls), tokenizer.decode(ids)
    return [(name, json.loads(text)) for name, text in calls]


@pytest.mark.parametrize("special", [False, True], ids=["marks_as_text", "marks_as_tokens"])
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
@pytest.mark.parametrize(("names", "most"), [(tuple(SCHEMAS), 4), (("find_files",), 1)], ids=["required", "named"])
@pytest.mark.slow
def test_a_forced_call_is_one_of_an_offered_tool_with_valid_arguments(
    dialect: str, special: bool, names: tuple[str, ...], most: int
) -> None:
    marks = DIALECTS[dialect].marks
    tokenizer = FakeTokenizer(290 + len(marks), (*(marks if special else ("<|a|>",)), "<|end|>"))
    ids = {m: t for m in marks if (t := tokenizer.token_id(m)) in tokenizer.token_bytes.special and t is not None}
    compiler = GuidanceCompiler(tokenizer, frozenset({tokenizer.end_id}))
    grammar = calls_grammar(dialect, tools(*names), ids, most=most)
    start = compiler.compile(str(grammar.kind), grammar.text)
    validator: Any = import_module("jsonschema").Draft202012Validator
    seen = set()
    for seed in range(6):
        calls = read(dialect, tokenizer, walk(start.copy(), tokenizer, random.Random(seed), ENDS.get(dialect, ())))
        assert 1 <= len(calls) <= most
        for name, arguments in calls:
            assert name in names
            validator(SCHEMAS[name] or {"maxProperties": 0}).validate(arguments)
            seen.add(name)
    assert seen == {"find_files"} if most == 1 else seen


def test_an_answer_of_a_schema_may_stand_beside_calls() -> None:
    tokenizer = FakeTokenizer(300)
    compiler = GuidanceCompiler(tokenizer, frozenset({tokenizer.end_id}))
    grammar = calls_grammar("json", tools("now"), {}, answer={"type": "integer"})
    matcher = compiler.compile(str(grammar.kind), grammar.text)
    for text in ("12", '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'):
        ids = [*tokenizer.encode(text), tokenizer.end_id]
        assert matcher.allowed(ids) == len(ids)
    assert matcher.allowed(tokenizer.encode("no")) == 0
