"""JSON values that no field expects: wrong types, edges of numbers, depth, odd letters, pieces of other fields."""

from __future__ import annotations

import random
from typing import Any

from tests.prove.fuzzing.writing import Pairs, Raw

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 7, 300, 1023, 1024, 10**6, 2**31 - 1, 2**31, 2**53, 2**63, 2**64, -(2**63) - 1, 10**30, -0.0, 0.5,
    1.5, 5e-324, 1.7e308, -1.0,
    Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e999"), Raw("-0"), Raw("01"), Raw("1."), Raw(".5"), Raw("+1"),
    Raw("0x10"), Raw("9" * 400), Raw("9" * 5000), Raw("1e-999"), Raw("1E+2"),
)  # fmt: skip
TEXTS: tuple[Any, ...] = (
    "", " ", "x", "0", "1", "-1", "1.5", "1e3", "nan", "inf", "true", "null", "none", "auto", "required", "hash",
    "text", "json_object", "json_schema", "function", "system", "developer", "user", "assistant", "tool", "banana",
    "\x00", "\ufeff", "\u2028", "\ufffd", "\ud800", "\udfff\ud800", "😀", "é" * 40, "a" * 3000, "<|end|>", "<|user|>",
    "</think>", "{", "}", '"', "\\", "{{7*7}}", "{% raw %}", "../../etc/passwd", "%s%n", "{0.__class__}", "\r\nX: y",
    "１２", "٣", "1_000", "１", "high", "foreground", "title", "Traceback",
)  # fmt: skip
CONSTANTS: tuple[Any, ...] = (None, True, False, [], {}, [[]], [{}], {"": ""}, [None], {"a": None})
BROKEN: tuple[Any, ...] = (
    Raw("tru"), Raw("None"), Raw("'x'"), Raw("undefined"), Raw("/* x */ 1"), Raw('"\x01"'), Raw('"\\x41"'),
    Raw('"\\u12"'), Raw('"open'), Raw("[1,]"), Raw('{"a":1,}'), Raw("{1:2}"), Raw(""), Raw("[1 2]"), Raw("]"),
    Raw("}{"), Raw('"\\ud83d"'), Raw('"\\ud83d\\u0041"'), Raw("nul"),
)  # fmt: skip
FUNCTIONS: tuple[Any, ...] = (
    {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},
    {"type": "function", "function": {"name": ""}},
    {"type": "function", "function": {"name": "f", "parameters": []}},
    {"type": "function", "function": {"name": 7}},
    {"type": "function", "function": None},
    {"type": "function", "function": "f"},
    {"type": "function", "name": "f", "parameters": None, "strict": True},
    {"type": "web_search"},
    {"type": 5},
    {"type": "function", "function": {"name": "f", "description": {"a": [1]}, "strict": "x"}},
    {},
)
FORMATS: tuple[Any, ...] = (
    {"type": "text"}, {"type": "json_object"}, {"type": "json_schema"}, {"type": "xml"}, {"type": None}, {"type": []},
    {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object", "$ref": "#"}, "strict": True}},
    {"type": "json_schema", "json_schema": {"schema": []}},
)  # fmt: skip
CHOICES: tuple[Any, ...] = (
    "required", "none", "any", {"type": "function", "function": {"name": "look_up"}},
    {"type": "function", "function": {"name": "absent"}}, {"type": "function", "name": "add"}, {"type": "tool"},
    {"type": "function", "function": {"name": []}}, [], {"type": "allowed_tools"},
)  # fmt: skip
CONTENTS: tuple[Any, ...] = (
    [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], [{"type": "text"}], [{"text": "a"}], ["a"], [[]],
    [{"type": "image_url", "image_url": {"url": "data:,x"}}], [{"type": "input_audio"}], [{"type": 3}],
    {"type": "text"}, [{"type": "text", "text": None}], [{"type": "text", "text": ["a"]}], 5, True, [None],
)  # fmt: skip
MESSAGES: tuple[Any, ...] = (
    {"role": "user"}, {"content": "x"}, {"role": "user", "content": None}, {"role": "banana", "content": "x"},
    {"role": 7, "content": "x"}, {"role": "tool", "content": "x"}, {"role": "function", "content": "x"}, "user", None,
    {"role": "assistant", "tool_calls": "f"}, {"role": "assistant", "tool_calls": [{}]}, {"role": ["user"]},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[" * 99999}}]},
    {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}, "type": "x"}]},
    {"role": "assistant", "content": None, "tool_calls": [], "reasoning_content": 5},
    {"role": "assistant", "content": "x", "reasoning_content": "y", "refusal": "z"},
    {"role": "system", "content": "make a title"}, {"role": "developer", "content": []},
    {"role": "user", "content": "x", "name": {"a": 1}}, {"role": "user ", "content": "x"}, {"Role": "user"},
)  # fmt: skip
STOPS: tuple[Any, ...] = (
    "", "a", [""], ["a", "b", "c", "d", "e"], [1], ["\x00"], ["\ud800"], ["a"] * 16, ["a"] * 17, ["a" * 1024],
    ["a" * 1025], "a" * 2000, [["a"]], {"a": 1}, [None], ["😀", "\ufffd", "é"],
)  # fmt: skip
BY_FIELD: dict[str, tuple[Any, ...]] = {
    "tools": (FUNCTIONS, list(FUNCTIONS), [[]], list(FUNCTIONS[:1]) * 1025, list(FUNCTIONS[:1]) * 3),
    "response_format": FORMATS,
    "tool_choice": CHOICES,
    "content": CONTENTS,
    "messages": (*([message] for message in MESSAGES), list(MESSAGES), [MESSAGES[2]] * 40),
    "stop": STOPS,
    "prompt": (
        [], [[]], [[1], [2]], ["a", "b"], ["a"], [[1, 2]], [1, "a"], [True], [-1], [511, 512], [10**30], "a" * 5000,
    ),
    "logit_bias": ({"5": -100}, {"999999999": 1}, {"-1": 1}, {"abc": 1}, {"5": "x"}, []),
    "stream_options": ({"include_usage": "yes"}, {"include_usage": None, "x": 1}, [], {"continuous_usage_stats": True}),
    "chat_template_kwargs": (
        {"messages": []}, {"enable_thinking": 5}, {"thinking": {"type": "enabled"}}, {"thinking": {"type": []}},
        {"reasoning_effort": "vast"}, {"a": {"b": [1]}}, {"thinking": [1]},
    ),
}  # fmt: skip


def value(chance: random.Random, field: str = "") -> Any:
    """Any value; for a known field often one of those it is known for."""
    if field in BY_FIELD and chance.random() < 0.5:
        return chance.choice(BY_FIELD[field])
    kind = chance.randrange(12)
    if kind < 4:
        return chance.choice(NUMBERS)
    if kind < 7:
        return chance.choice(TEXTS)
    if kind < 9:
        return chance.choice(CONSTANTS)
    if kind == 9:
        return chance.choice(BROKEN)
    return _nested(chance)


def _nested(chance: random.Random) -> Any:
    inner: Any = chance.choice((None, 1, "x", [], {}))
    depth = chance.choice((1, 2, 5, 90, 99, 101, 300, 5000))
    kind = chance.randrange(4)
    if kind == 0:
        return Raw("[" * depth + "]" * depth)
    if kind == 1:
        return Raw('{"a":' * depth + "1" + "}" * depth)
    if kind == 2:
        return [inner] * min(depth, 300)
    return Pairs(tuple((f"k{number % 7}", inner) for number in range(min(depth, 300))))
