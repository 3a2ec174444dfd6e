"""Tool calls and reasoning as people met them: markup of calls, tags of thoughts, stops between them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from tensorfold.application.ports.tokenizer import RenderedChat
from tensorfold.domain.conversation.template_traits import TemplateTraits
from tests.end_to_end.cases.scripted import END, Said, Scripted, Token, scripted
from tests.fakes.tokenizer import FakeTemplate


class TailedTemplate(FakeTemplate):
    """The fake template with something behind the assistant's token."""

    def __init__(self, tool_calls: str = "function_parameters", tail: str = "") -> None:
        super().__init__(TemplateTraits(tool_calls=tool_calls, thought_close="</think>"))
        self._tail = tail

    def render(self, messages: Sequence[Mapping[str, Any]], **how: Any) -> RenderedChat:
        return RenderedChat(super().render(messages, **how).text + self._tail)


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "description": "a tool", "parameters": parameters}}


TEXT = {"type": "string"}
LIST_FILES = tool("list_files", glob=TEXT)
CALL = "<tool_call>\n<function=list_files>\n<parameter=glob>\n**/owl.md\n</parameter>\n</function>\n</tool_call>"
CALLED = [("list_files", '{"glob":"**/owl.md"}')]


def cuts(script: Sequence[str]) -> Iterator[list[Token]]:
    """A script as it is, as one piece, and letter by letter."""
    yield [*script, END]
    yield ["".join(script), END]
    yield [*"".join(script), END]


def ways(script: Sequence[str], tail: str = "", dialect: str = "function_parameters", **fields: Any) -> Said:
    """What is told of a script, the same under every cut, window and form; the whole form comes back."""
    told: list[Said] = []
    for tokens in cuts(script):
        for window in (1, 4):
            with scripted(tokens, template=TailedTemplate(dialect, tail), window=window) as server:
                whole, streamed = server.both(**fields)
                assert (whole.status, streamed.status, whole.error, streamed.error) == (200, 200, None, None)
                assert whole.told == streamed.told
                told += [whole, streamed]
    assert len({(said.text, said.reasoning, str(said.called), said.finish) for said in told}) == 1
    return told[0]


@pytest.mark.parametrize(
    ("dialect", "markup"),
    [
        ("function_parameters", CALL),
        ("arg_key_value", "<tool_call>list_files<arg_key>glob</arg_key><arg_value>**/owl.md</arg_value></tool_call>"),
        ("gemma4", '<|tool_call>call:list_files{glob:<|"|>**/owl.md<|"|>}<tool_call|>'),
        ("json", '<tool_call>\n{"name": "list_files", "arguments": {"glob":"**/owl.md"}}\n</tool_call>'),
    ],
)
@pytest.mark.slow
def test_a_call_in_its_familys_markup_is_one_structured_call(dialect: str, markup: str) -> None:
    said = ways([markup], dialect=dialect, tools=[LIST_FILES])
    assert (said.called, said.text, said.finish) == (CALLED, "", "tool_calls")
    assert said.body["choices"][0]["message"]["content"] is None
    assert re.fullmatch("call_[0-9a-f]{24}", said.calls[0]["id"])


@pytest.mark.parametrize("dialect", ["arg_key_value", "gemma4", "json", ""])
@pytest.mark.slow
def test_a_form_that_the_family_does_not_use_is_text(dialect: str) -> None:
    said = ways([CALL], dialect=dialect, tools=[LIST_FILES])
    assert (said.called, said.text, said.finish) == ([], CALL, "stop")


@pytest.mark.slow
def test_a_good_call_behind_a_broken_one_is_delivered_and_the_broken_one_is_text() -> None:
    broken = '<tool_call>\n{"name": "list_files", "arguments": {"glob" "x"}}\n</tool_call>\n'
    said = ways([broken, CALL], tools=[LIST_FILES])
    assert (said.called, said.text, said.finish) == (CALLED, broken.rstrip(), "tool_calls")


@pytest.mark.slow
def test_values_between_tags_are_the_json_that_the_schema_takes() -> None:
    go = tool("go", where={"anyOf": [{"type": "object"}, {"type": "null"}]}, items={"type": "array", "items": TEXT})
    body = '<parameter=where>\n{"town": "Lyon"}\n</parameter>\n<parameter=items>\n["a", "b"]\n</parameter>\n'
    said = ways([f"<tool_call>\n<function=go>\n{body}</function>\n</tool_call>"], tools=[go])
    assert json.loads(said.called[0][1]) == {"where": {"town": "Lyon"}, "items": ["a", "b"]}


@pytest.mark.slow
def test_the_first_delta_of_a_call_has_its_id_and_whole_name_and_later_ones_arguments_alone() -> None:
    with scripted([*CALL, END], template=TailedTemplate()) as server:
        said = server.chat(stream=True, tools=[LIST_FILES])
    deltas = [d for chunk in said.chunks for c in chunk["choices"] for d in c["delta"].get("tool_calls", ())]
    first, *later = deltas
    assert (first["index"], first["type"], first["function"]) == (
        0, "function", {"name": "list_files", "arguments": ""},
    )  # fmt: skip
    assert first["id"] == said.calls[0]["id"]
    assert len(later) > 5
    assert all(set(delta) == {"index", "function"} and set(delta["function"]) == {"arguments"} for delta in later)


@pytest.mark.slow
def test_a_call_behind_some_text_ends_the_reply_as_a_call_with_the_text_kept() -> None:
    said = ways(["ok ", CALL], tools=[LIST_FILES])
    assert (said.called, said.text, said.finish) == (CALLED, "ok", "tool_calls")


@pytest.mark.slow
def test_a_call_behind_a_thought_that_was_never_closed_is_a_call() -> None:
    said = ways(["I should look.\n", CALL], "<think>\n", tools=[LIST_FILES])
    assert (said.called, said.reasoning, said.text, said.finish) == (CALLED, "I should look.", "", "tool_calls")


@pytest.mark.parametrize("fields", [{}, {"tools": []}, {"tools": [LIST_FILES], "tool_choice": "none"}])
@pytest.mark.slow
def test_markup_of_a_call_is_text_where_no_tool_is_offered(fields: dict[str, Any]) -> None:
    said = ways([CALL], **fields)
    assert (said.called, said.text, said.finish) == ([], CALL, "stop")


@pytest.mark.slow
def test_a_call_of_another_tool_is_not_made_one_of_an_offered_tool() -> None:
    said = ways([CALL], tools=[tool("list_file"), tool("list_files_")])
    assert (said.called, said.text, said.finish) == ([], CALL, "stop")


@pytest.mark.slow
def test_one_call_is_given_where_parallel_calls_are_not_wanted_and_all_tokens_are_counted() -> None:
    second = CALL.replace("owl", "hen")
    both = ways([CALL, "\n", second], tools=[LIST_FILES])
    one = ways([CALL, "\n", second], tools=[LIST_FILES], parallel_tool_calls=False)
    assert both.called == [*CALLED, ("list_files", '{"glob":"**/hen.md"}')]
    assert (one.called, one.finish, one.usage) == (CALLED, "tool_calls", both.usage)


def test_a_call_that_the_limit_cuts_is_never_taken_for_a_whole_one() -> None:
    inside = CALL.index("wl.md")
    for limit, called, text in ((20, [], CALL[:20]), (inside, [("list_files", '{"glob":"**/o')], "")):
        with scripted([*CALL, END], template=TailedTemplate()) as server:
            whole, streamed = server.both(tools=[LIST_FILES], max_tokens=limit)
        assert whole.told == streamed.told
        assert (whole.called, whole.text, whole.finish) == (called, text, "length")


def test_a_limit_behind_a_whole_call_is_told_as_the_limit() -> None:
    with scripted([CALL, " and", " on", END], template=TailedTemplate()) as server:
        whole, streamed = server.both(tools=[LIST_FILES], max_tokens=2)
    assert whole.told == streamed.told
    assert (whole.called, whole.text, whole.finish) == (CALLED, "and", "length")


def test_usage_that_is_asked_for_in_every_chunk_rides_along_with_thoughts_and_calls() -> None:
    script = ["hm", "</think>", "ok ", CALL, END]
    options = {"include_usage": True, "continuous_usage_stats": True}
    with scripted(script, template=TailedTemplate(tail="<think>\n")) as server:
        said = server.chat(stream=True, tools=[LIST_FILES], stream_options=options)
    assert (said.reasoning, said.text, said.called, said.finish) == ("hm", "ok", CALLED, "tool_calls")
    first, *rest = said.chunks
    assert "usage" not in first
    counts = [chunk["usage"]["completion_tokens"] for chunk in rest]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 5)


@pytest.mark.slow
def test_a_thought_that_the_prompt_opened_is_told_from_the_answer() -> None:
    said = ways(["I add.", "</think>", "\n\n", "4"], "<think>\n")
    assert (said.reasoning, said.text, said.finish) == ("I add.", "4", "stop")
    assert "think>" not in said.raw


def test_tokens_of_the_thought_are_counted_through_its_close() -> None:
    with scripted(["I", " add", "</think>", "\n\n", "4", END], template=TailedTemplate(tail="<think>\n")) as server:
        whole, streamed = server.both()
    assert whole.usage == streamed.usage
    assert whole.usage is not None
    assert (whole.usage["completion_tokens_details"], whole.usage["completion_tokens"]) == ({"reasoning_tokens": 3}, 6)


def test_a_limit_inside_the_thought_leaves_the_answer_empty() -> None:
    script = ["long ", "thought ", "goes ", "on ", "</think>", "x", END]
    with scripted(script, template=TailedTemplate(tail="<think>\n")) as server:
        whole, streamed = server.both(max_tokens=3)
    assert whole.told == streamed.told
    assert (whole.reasoning, whole.text, whole.finish) == ("long thought goes ", "", "length")


def test_tags_that_the_answer_quotes_are_text() -> None:
    said = ways(["ok", "</think>", "Write `<think>", "draft", "</think>` first."], "<think>\n")
    assert (said.reasoning, said.text) == ("ok", "Write `<think>draft</think>` first.")


@pytest.mark.slow
def test_a_stop_in_the_thought_ends_nothing_and_the_one_in_the_answer_does() -> None:
    said = ways(["a STOP b\n\n", "</think>", "\n\n", "c ST", "OP d"], "<think>\n", stop=["STOP", "\n\n"])
    assert (said.reasoning, said.text, said.finish) == ("a STOP b", "c ", "stop")


def test_a_conversation_in_the_text_shape_is_answered_as_it_is_written() -> None:
    script = ["hm", "</think>", "\n\n", CALL, END]
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [LIST_FILES], "temperature": 0}
    with scripted(script, template=TailedTemplate(tail="<think>\n")) as server:
        for streamed in (False, True):
            said: Said = server.ask(body | {"stream": streamed}, "/v1/completions")
            assert (said.text, said.finish) == ("hm</think>\n\n" + CALL, "stop")


def test_thinking_that_is_off_closes_a_thought_that_the_template_opens_all_the_same() -> None:
    with scripted(template=TailedTemplate(tail="<think>\n")) as server:
        for fields in ({"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}}):
            said = server.chat(**fields)
            assert server.prompt.endswith("<think>\n\n</think>\n\n")
            assert (said.reasoning, said.text) == ("", "yes")
        assert _opened(server)


def _opened(server: Scripted) -> bool:
    said = server.chat()
    return server.prompt.endswith("<think>\n") and (said.reasoning, said.text) == ("yes", "")
