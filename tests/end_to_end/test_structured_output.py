"""Replies of a given form and forced calls as OpenAI's client sees them: a real socket, a hash model steered to end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tensorfold.domain.conversation.dialects import DIALECTS
from tests.end_to_end.asked_forms import ARGUMENTS, NAMED, SCHEMA, TOOLS, Answer, client_of
from tests.end_to_end.served import client_of as client_at
from tests.end_to_end.served import served
from tests.libraries import needs

pytestmark = [pytest.mark.slow, needs("llguidance")]

ASK: list[Any] = [{"role": "user", "content": "Find the notes."}]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with client_of() as made:
        yield made


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[str, list[tuple[str, str]], str | None]:
    """Text, calls and the reason of a streamed reply."""
    text, finish = "", None
    calls: dict[int, list[str]] = {}
    for chunk in client.chat.completions.create(model="hash", messages=ASK, stream=True, **fields):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                known = calls.setdefault(call.index, ["", ""])
                known[0] += call.function.name or ""
                known[1] += call.function.arguments or ""
    return text, [(name, arguments) for name, arguments in calls.values()], finish


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1.0, "seed": 3}], ids=str)
def test_a_schema_of_pydantics_is_parsed_streamed_plain_and_serial(
    client: openai.OpenAI, sampling: dict[str, Any]
) -> None:
    said = client.chat.completions.parse(model="hash", messages=ASK, response_format=Answer, **sampling)
    assert said.choices[0].finish_reason == "stop" and isinstance(said.choices[0].message.parsed, Answer)
    text = said.choices[0].message.content
    for draft in (True, False):
        got = streamed(client, response_format=SCHEMA, extra_body={"draft": draft}, **sampling)
        Answer.model_validate_json(got[0])
        assert got[2] == "stop"
        again: Any = client.chat.completions.create(
            model="hash", messages=ASK, response_format=SCHEMA, extra_body={"draft": not draft}, **sampling
        )
        assert again.choices[0].message.content == got[0]
    assert text is not None and json.loads(text)


@pytest.mark.parametrize("choice", ["required", NAMED], ids=str)
@pytest.mark.parametrize("dialect", sorted(DIALECTS))
def test_a_forced_call_is_one_of_an_offered_tool_in_every_form(dialect: str, choice: Any) -> None:
    with client_of(dialect) as client:
        for sampling in ({"temperature": 0}, {"temperature": 1.0, "seed": 5}, {"temperature": 1.0, "seed": 6}):
            fields: dict[str, Any] = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False, **sampling}
            said: Any = client.chat.completions.create(model="hash", messages=ASK, **fields)
            assert said.choices[0].finish_reason == "tool_calls" and not said.choices[0].message.content
            calls = [(c.function.name, c.function.arguments) for c in said.choices[0].message.tool_calls]
            assert len(calls) == 1 and (choice == "required" or calls[0][0] == "find_files")
            ARGUMENTS[calls[0][0]].validate_json(calls[0][1])
            assert streamed(client, **fields) == ("", calls, "tool_calls")
            assert streamed(client, **fields, extra_body={"draft": False}) == ("", calls, "tool_calls")


def test_several_calls_may_be_forced_at_once(client: openai.OpenAI) -> None:
    most = 0
    for seed in range(6):
        _, calls, finish = streamed(client, tools=TOOLS, tool_choice="required", temperature=1.0, seed=seed)
        assert finish == "tool_calls" and calls
        for name, arguments in calls:
            ARGUMENTS[name].validate_json(arguments)
        most = max(most, len(calls))
    assert most >= 1


def test_texts_of_other_forms_fit_them(client: openai.OpenAI) -> None:
    for field, value, fits in (
        ("guided_choice", ["left", "right"], "left|right"),
        ("guided_regex", "[0-9]{3}-[0-9]{2}", "[0-9]{3}-[0-9]{2}"),
        ("guided_grammar", 'start: "<" /[a-c]{2}/ ">"', "<[a-c]{2}>"),
        ("structured_outputs", {"json": {"type": "boolean"}}, "true|false"),
    ):
        for sampling in ({"temperature": 0}, {"temperature": 1.2, "seed": 9}):
            text, _, finish = streamed(client, extra_body={field: value}, **sampling)
            assert finish == "stop" and re.fullmatch(fits, text), (field, text)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_regex": "("}, "guided_regex"),
        ({"guided_grammar": "start: missing"}, "guided_grammar"),
        ({"guided_json": {"not": {}}}, "guided_json"),
        ({"structured_outputs": {"json": {"type": "strin"}}}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}, "tools": TOOLS, "tool_choice": "required"}, "response_format"),
        ({"tools": [{"function": {"name": "a", "parameters": {"not": {}}}}], "tool_choice": "required"}, "tool_choice"),
    ],
)
def test_a_form_that_cannot_be_held_is_refused_before_the_first_byte(
    client: openai.OpenAI, fields: dict[str, Any], param: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="hash", messages=ASK, stream=stream, extra_body=fields)
    assert refused.value.param == param and "llguidance" not in str(refused.value)
    assert client.chat.completions.create(model="hash", messages=ASK, max_tokens=2).choices


def test_a_served_checkpoint_holds_its_replies_to_a_form(home: Path) -> None:
    """Real kernels and a real tokenizer; the weights are random, so the form alone says where replies end."""
    with served(["serve", "tiny", "--port", "0"], home) as server, client_at(server.port) as client:
        for sampling in ({"temperature": 0}, {"temperature": 1.3, "seed": 4}):
            said = {
                streamed(
                    client, extra_body={"guided_regex": "[a-f]{12}(, [0-9]{4}){3}\\.", "draft": draft}, **sampling
                )[0]
                for draft in (True, False)
            }
            (text,) = said
            assert re.fullmatch(r"[a-f]{12}(, [0-9]{4}){3}\.", text)
        with pytest.raises(openai.BadRequestError) as refused:
            streamed(client, extra_body={"guided_json": {"type": "strin"}})
        assert refused.value.param == "guided_json"
