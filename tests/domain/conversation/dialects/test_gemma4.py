"""Gemma 4's objects with bare keys and marked texts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.domain.conversation.reading import CHANNEL, GEMMA, read_every_way

Q = '<|"|>'


def call(body: str, name: str = "find") -> str:
    return f"<|tool_call>call:{name}{{{body}}}<tool_call|>"


@pytest.mark.parametrize(
    ("body", "arguments"),
    [
        ("", {}),
        (f"text:{Q}**/notes.md{Q}", {"text": "**/notes.md"}),
        (f'text:{Q}a}} {{ "b" , c\n\\ <tool_call|>{Q},count:3', {"text": 'a} { "b" , c\n\\ <tool_call|>', "count": 3}),
        (f"where:{{city:{Q}Lyon{Q},deep:{{}}}},items:[{Q}a{Q},{Q}b{Q}]",
         {"where": {"city": "Lyon", "deep": {}}, "items": ["a", "b"]}),
        ("sure:true,share:-1.5e2,where:null", {"sure": True, "share": -150.0, "where": None}),
        (f" text : {Q}a{Q} , items : [ 1 , [ ] , false ] ", {"text": "a", "items": [1, [], False]}),
        ('text:"a\\n\\"b",items:["x"]', {"text": 'a\n"b', "items": ["x"]}),
        ("text:Paris,where:12a", {"text": "Paris", "where": "12a"}),
        ("text:12,count:12", {"text": "12", "count": 12}),
        (f"{Q}text{Q}:{Q}a{Q},\"b\":1", {"text": "a", "b": 1}),
    ],
)  # fmt: skip
def test_a_call_is_read_out_of_its_reply(body: str, arguments: Any) -> None:
    told = read_every_way("Yes. " + call(body) + call("", "now"), GEMMA)
    assert [(one.name, one.parsed, one.whole) for one in told.calls] == [("find", arguments, True), ("now", {}, True)]
    assert told.text == "Yes."


@pytest.mark.parametrize("close", ["<tool_call|>", ""])
def test_a_call_at_the_start_may_lack_its_marks(close: str) -> None:
    told = read_every_way(f"\ncall:find{{text:{Q}a{Q}}}{close}", GEMMA)
    assert ([one.parsed for one in told.calls], told.text) == ([{"text": "a"}], "")


def test_several_calls_may_stand_inside_one_pair_of_marks() -> None:
    told = read_every_way(f"<|tool_call>call:find{{text:{Q}a{Q}}} call:now{{}}<tool_call|>ok", GEMMA)
    assert ([(one.name, one.parsed) for one in told.calls], told.text) == ([("find", {"text": "a"}), ("now", {})], "ok")
    told = read_every_way("<|tool_call>call:now{}call:lose{}<tool_call|>", GEMMA)
    assert ([one.name for one in told.calls], told.text) == (["now"], "call:lose{}<tool_call|>")


def test_each_of_several_thoughts_may_hold_a_call() -> None:
    one, two = (
        "<|channel>thought\n" + text + "<|tool_call>call:now{}<tool_call|>x<chan<channel|>" for text in ("a ", "b ")
    )
    told = read_every_way(one + "mid <|to" + two + "end", GEMMA, thoughts=CHANNEL)
    assert [one.name for one in told.calls] == ["now", "now"]
    assert (told.reasoning, told.text) == ("a x<chan\nb x<chan", "mid <|toend")


def test_the_word_in_a_sentence_is_no_call() -> None:
    for reply in ("call: me", "I call:now{} it", "call:find out", "cal", "call:lose{}", "call:now{} it is"):
        told = read_every_way(reply, GEMMA)
        assert (told.text, told.calls) == (reply, [])


@pytest.mark.parametrize(
    "reply",
    [
        call("", "lose"),
        call("text"),
        call("text:"),
        call("text:,"),
        call("text:<b>"),
        call(f"text:{Q}a"),
        call(f"text:{Q}a{Q}}}"),
        call('text:"a\\q"'),
        call("text:a<b"),
        "<|tool_call>call:find{text:a<b",
        call("items:[1,2"),
        call("where:{a:1"),
        call('text:"a\nb"'),
        call("items:" + "[" * 200 + "]" * 200),
        "<|tool_call>call:find{text:<|",
        "<|tool_call>find{}",
        "<|tool_call>",
        "<|tool_c",
    ],
)
def test_what_is_no_call_of_an_offered_tool_is_text_as_it_was_written(reply: str) -> None:
    told = read_every_way(reply, GEMMA)
    assert (told.text, told.calls) == (reply, [])
