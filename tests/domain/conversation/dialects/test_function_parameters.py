"""Qwen's and Nemotron's tags: values typed by the schema, text about tags left alone, every cut alike."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.conversation.reply_reader import CallArguments
from tests.domain.conversation.reading import QWEN, read, read_every_way


def call(*parameters: tuple[str, str], name: str = "find") -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("reply", "text", "arguments"),
    [
        (call(("text", "**/notes.md")), "", [{"text": "**/notes.md"}]),
        ("ok \n\n" + call(("text", "a")), "ok", [{"text": "a"}]),
        (call(("text", "a")) + "\n" + call(("count", "5")) + "\n", "", [{"text": "a"}, {"count": 5}]),
        (call(("text", "a")) + "\nand more", "and more", [{"text": "a"}]),
        ("before\n" + call(("text", "a")) + "\nafter ", "before\n\nafter ", [{"text": "a"}]),
        (call(), "", [{}]),
        ("<tool_call><function=now></function></tool_call>", "", [{}]),
        ("<tool_call>\n<function=now>\n</function>", "", [{}]),
        (call(("where", '{"city": "Lyon"}'), ("items", '["a", "b"]')), "",
         [{"where": {"city": "Lyon"}, "items": ["a", "b"]}]),
        (call(("where", "null"), ("sure", "True"), ("share", "1e3")), "",
         [{"where": None, "sure": True, "share": 1000.0}]),
        (call(("count", "many"), ("text", "5")), "", [{"count": "many", "text": "5"}]),
        (call(("text", 'two\n lines "quoted" \\ é 😀 \x07')), "", [{"text": 'two\n lines "quoted" \\ é 😀 \x07'}]),
        (call(("text", "\n"), ("text2", "")), "", [{"text": "\n", "text2": ""}]),
        (call(("text", "a </parameter> b </function> c </tool_call> d")), "",
         [{"text": "a </parameter> b </function> c </tool_call> d"}]),
        (call(("text", "<parameter=x>\n1\n")), "", [{"text": "<parameter=x>\n1\n"}]),
        ("<tool_call><function=find><parameter=text>a</parameter></function></tool_call>", "", [{"text": "a"}]),
        ("<tool_call>\n<function=find>\n<parameter=text>\na\n</function>\n</tool_call>", "", [{"text": "a"}]),
        ("<tool_call>\n<function=find>\n<parameter=text>\na\n</parameter>\n</function>\n</tool", "", [{"text": "a"}]),
    ],
)  # fmt: skip
def test_a_call_is_read_out_of_its_reply(reply: str, text: str, arguments: list[Any]) -> None:
    told = read_every_way(reply, QWEN)
    assert told.text == text
    assert [one.parsed for one in told.calls] == arguments
    assert all(one.whole for one in told.calls)


@pytest.mark.parametrize(
    "reply",
    [
        call(("text", "a"), name="lose"),
        call(("text", "a"), name="findfind"),
        '<tool_call>\n{"name": "find", "arguments": {"text": "a"}}\n</tool_call>',
        "<tool_call>find<arg_key>text</arg_key><arg_value>a</arg_value></tool_call>",
        "<tool_call>\n<function=find>\n{}\n</function>\n</tool_call>",
        "<tool_call>\n<function=find>\n<parameter=>\na\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=find>\n<parameter=te\nxt>\na\n</parameter>\n</function>\n</tool_call>",
        "<tool_call>\n<function=now>\n</function>\nx</tool_call>",
        "<tool_call>\n<function=find>\n<parameter=te",
        "<tool_call>\n<function=find>\n",
        " the <tool_call> mark and <tool_",
        " \n<tool_call>",
        "<function=find>\n<parameter=text>\na\n</parameter>\n</function>",
    ],
)
def test_what_is_no_call_of_an_offered_tool_is_text_as_it_was_written(reply: str) -> None:
    told = read_every_way(reply, QWEN)
    assert (told.text, told.calls) == (reply, [])


def test_a_good_call_behind_a_broken_one_is_read() -> None:
    broken = '<tool_call>\n{"name": "find", "arguments": {"text" "x"}}\n</tool_call>\n'
    told = read_every_way(broken + call(("text", "ok.txt")), QWEN)
    assert told.text == broken.rstrip()
    assert [one.parsed for one in told.calls] == [{"text": "ok.txt"}]


def test_a_call_inside_a_broken_one_is_read() -> None:
    told = read_every_way("<tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>", QWEN)
    assert told.text == "<tool_call>"
    assert [one.parsed for one in told.calls] == [{}]


def test_arguments_come_while_they_are_written() -> None:
    pieces = ["<tool_call>\n<function=find>\n", "<parameter=text>\n", "one ", "two\n", "three", "\n</parameter>\n"]
    told = read([*pieces, "</function>\n</tool_call>"], QWEN)
    assert [part.json for part in told.parts if isinstance(part, CallArguments)] == [
        '{"text":"', "one ", "two", "\\nthree", '"}',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("<parameter=text>\nhalf of ", '{"text":"half of '),
        ("<parameter=text>\nhalf </parameter>\n", '{"text":"half </parameter>\\n'),
        ("<parameter=text>\n", '{"text":"'),
        ('<parameter=where>\n{"city": "Ly', '{"where":{"city": "Ly'),
        ("<parameter=text>\na\n</parameter>\n<parameter=cou", '{"text":"a\\n</parameter>\\n<parameter=cou'),
    ],
)
def test_a_call_that_the_end_of_the_reply_cuts_is_not_whole_and_cannot_be_taken_for_one(
    written: str, arguments: str
) -> None:
    told = read_every_way(f"<tool_call>\n<function=find>\n{written}", QWEN)
    (cut,) = told.calls
    assert (cut.arguments, cut.whole, told.text) == (arguments, False, "")
    with pytest.raises(ValueError):
        assert cut.parsed


def test_of_several_calls_one_is_passed_on_where_one_is_wanted() -> None:
    calls = call(("text", "a")) + "\n" + call(("text", "b"))
    told = read_every_way(calls + "\nend", QWEN, most=1)
    assert ([one.parsed for one in told.calls], told.text) == ([{"text": "a"}], "end")
    cut = read_every_way("<tool_call>\n<function=find>\n<parameter=text>\nhalf", QWEN, most=1)
    assert (cut.calls, cut.text) == ([], "<tool_call>\n<function=find>\n<parameter=text>\nhalf")
