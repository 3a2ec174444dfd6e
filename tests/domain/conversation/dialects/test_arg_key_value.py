"""GLM's pairs of keys and values."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.conversation.reply_reader import CallArguments
from tests.domain.conversation.reading import GLM, read, read_every_way


def call(*pairs: tuple[str, str], name: str = "find", between: str = "") -> str:
    body = "".join(f"{between}<arg_key>{key}</arg_key>{between}<arg_value>{value}</arg_value>" for key, value in pairs)
    return f"<tool_call>{name}{body}{between}</tool_call>"


@pytest.mark.parametrize("between", ["", "\n"])
@pytest.mark.parametrize(
    ("pairs", "arguments"),
    [
        ([("text", "**/notes.md")], {"text": "**/notes.md"}),
        ([("text", "  blanks kept\n\n"), ("count", "5")], {"text": "  blanks kept\n\n", "count": 5}),
        ([("where", '{"city": "Lyon"}'), ("items", "[]")], {"where": {"city": "Lyon"}, "items": []}),
        ([("text", "a</arg_value>b<arg_key>c</arg_key>d"), ("sure", "false")],
         {"text": "a</arg_value>b<arg_key>c</arg_key>d", "sure": False}),
        ([("text", "</arg_value>\n<arg_key>")], {"text": "</arg_value>\n<arg_key>"}),
        ([("text", ""), ("other", "5")], {"text": "", "other": "5"}),
        ([], {}),
    ],
)  # fmt: skip
def test_a_call_is_read_out_of_its_reply(pairs: list[tuple[str, str]], arguments: Any, between: str) -> None:
    told = read_every_way("Look: " + call(*pairs, between=between), GLM)
    assert [(one.name, one.parsed, one.whole) for one in told.calls] == [("find", arguments, True)]
    assert told.text == "Look:"


@pytest.mark.parametrize(
    "reply",
    [
        call(("text", "a"), name="lose"),
        "<tool_call>find me a thing</tool_call>",
        "<tool_call>find<arg_value>a</arg_value></tool_call>",
        "<tool_call>find<arg_key>text</arg_key>a</tool_call>",
        "<tool_call>find<arg_key>te<b>xt</arg_key><arg_value>a</arg_value></tool_call>",
        "<tool_call>find<arg_key>text",
        "<tool_call>find",
        "<tool_call>",
        "<tool_call>\n<function=find>\n<parameter=text>\na\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_what_is_no_call_of_an_offered_tool_is_text_as_it_was_written(reply: str) -> None:
    told = read_every_way(reply, GLM)
    assert (told.text, told.calls) == (reply, [])


def test_arguments_come_while_they_are_written_and_a_cut_call_is_not_whole() -> None:
    told = read(["<tool_call>", "find", "<arg_key>", "text", "</arg_key>", "<arg_value>", "one ", "two"], GLM)
    assert [part.json for part in told.parts if isinstance(part, CallArguments)] == ['{"text":"', "one ", "two"]
    assert not told.calls[0].whole
