"""Calls as JSON between marks."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.conversation.call_reader import CallCount, CallReader, Said
from tensorfold.domain.conversation.dialects import DIALECTS
from tensorfold.domain.conversation.offered_tools import OfferedTools
from tests.domain.conversation.reading import JSON, TOOLS, read, read_every_way


def call(body: str) -> str:
    return f"<tool_call>\n{body}\n</tool_call>"


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ('{"name": "find", "arguments": {"text": "**/notes.md"}}', '{"text": "**/notes.md"}'),
        ('{"arguments":{"text":"} \\" <tool_call> </tool_call>"},"name":"find"}',
         '{"text":"} \\" <tool_call> </tool_call>"}'),
        ('{ "name" : "find" , "arguments" : { "share" : 1.50 , "where" : { "a" : [ 1 , { } ] } } }',
         '{ "share" : 1.50 , "where" : { "a" : [ 1 , { } ] } }'),
        ('{"name": "find", "parameters": {"count": 12345678901234567890123}}', '{"count": 12345678901234567890123}'),
        ('{"name": "find", "arguments": "{\\"count\\": 5}"}', '{"count": 5}'),
        ('{"name": "find", "arguments": {"text": "\\ud83d\\ude00 é"}, "id": 3}', '{"text": "\\ud83d\\ude00 é"}'),
        ('{"name": "find"}', "{}"),
    ],
)  # fmt: skip
def test_a_call_is_read_out_of_its_reply_as_it_is_spelled(body: str, arguments: Any) -> None:
    told = read_every_way("Yes.\n" + call(body) + "\n" + call('{"name": "now", "arguments": {}}'), JSON)
    assert [(one.arguments, one.whole) for one in told.calls] == [(arguments, True), ("{}", True)]
    assert told.text == "Yes."


def test_a_call_whose_last_mark_is_missing_at_the_end_is_whole() -> None:
    told = read_every_way('<tool_call>\n{"name": "now", "arguments": {}}\n</tool_', JSON)
    assert ([one.parsed for one in told.calls], told.text) == ([{}], "")


@pytest.mark.parametrize(
    "reply",
    [
        call('{"name": "lose", "arguments": {}}'),
        call('{"name": "find", "arguments": {"text" "x"}}'),
        call('{"name": "find", "arguments": {"text": "x"}'),
        call('{"name": "find", "arguments": {"text": "x\ny"}}'),
        call('{"name": "find", "arguments": {"text": "x}}'),
        call('{"name": "find", "arguments": {"share": NaN}}'),
        call('{"name": "find", "arguments": [1]}'),
        call('{"name": "find", "arguments": "later"}'),
        call('{"name": "find", "arguments": null}'),
        call('{"name": ["find"], "arguments": {}}'),
        call('{"arguments": {}}'),
        call('{"name": "find", "arguments": {}} and more'),
        call("find"),
        call('{"name": "find", "arguments": ' + "[" * 3000 + "]" * 3000 + "}")[:200],
        '<tool_call>\n{"name": "find", "argu',
        "<tool_call>\n<function=find>\n<parameter=text>\na\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_what_is_no_call_of_an_offered_tool_is_text_as_it_was_written(reply: str) -> None:
    told = read_every_way(reply, JSON)
    assert (told.text, told.calls) == (reply, [])


@pytest.mark.parametrize("broken", ['{"name": "x\n', '{"name": <', "[", '{"name": "find"} x'])
def test_what_cannot_become_a_call_any_more_is_shown_at_once(broken: str) -> None:
    reader = CallReader(DIALECTS[JSON], OfferedTools(TOOLS), CallCount(), live=True)
    shown = "".join(part.text for part in reader.feed("<tool_call>" + broken + "and on") if isinstance(part, Said))
    assert shown == "<tool_call>" + broken + "and on"


def test_a_call_nested_beyond_reason_is_text() -> None:
    deep = '{"name": "find", "arguments": {"where": ' + "[" * 100_000 + "]" * 100_000 + "}}"
    assert read([call(deep)], JSON).text == call(deep)
