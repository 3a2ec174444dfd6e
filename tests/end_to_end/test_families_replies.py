"""Each family's replies over HTTP: its template renders, its markers are special tokens or text, clients get calls.

The model is scripted: it writes what a model of the family would. The template runs in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from tensorfold.adapters.tokenization.template import load_template
from tests.domain.conversation import reading
from tests.domain.conversation.dialects.writing import written
from tests.end_to_end.cases.scripted import END, Scripted, Token, scripted
from tests.fakes.tokenizer import SPECIALS
from tests.synthetic.templates import template_source

ARGUMENTS: dict[str, Any] = {"count": 3, "text": 'two\nlines, "quoted" é', "where": {"town": "Lyon"}}
TOOLS: Any = list(reading.TOOLS)
ASKED: Any = [{"role": "user", "content": "find it"}]


@dataclass(frozen=True, slots=True)
class Family:
    """How a family's model begins a reply that thinks and then calls, and which of its markers are special tokens."""

    name: str
    dialect: str
    thought: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    before_call: str = ""
    end: str = "<|im_end|>"


FAMILIES = (
    Family("qwen", "function_parameters", ("I ", "look.", "\n", "</think>", "\n\n"), before_call="\n\n"),
    Family("nemotron", "function_parameters", ("I ", "look.", "</think>"), ("<think>", "</think>")),
    Family("glm", "arg_key_value", ("I ", "look.", "</think>"),
           ("<think>", "</think>", "<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
            "</arg_value>"), end="<|observation|>"),
    Family("gemma4", "gemma4", ("<|channel>", "thought", "\n", "I ", "look.", "\n", "<channel|>"),
           ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", '<|"|>'), end="<|tool_response>"),
    Family("json", "json", before_call="\n"),
)  # fmt: skip


def script_of(family: Family) -> list[Token]:
    """Thought, some text, a call and the end; special tokens alone, the call's text in threes."""
    call = written(family.dialect, "find", ARGUMENTS)
    pieces: list[Token] = [*family.thought, "Here", ":", *([family.before_call] if family.before_call else [])]
    while call:
        mark = next((mark for mark in family.special if call.startswith(mark)), None)
        stops = [at for at in (call.find(mark) for mark in family.special) if at > 0]
        piece = mark or call[: min([3, *stops])]
        pieces.append(piece)
        call = call[len(piece) :]
    return [*pieces, family.end]


@contextmanager
def serving(family: Family, folder: Path, window: int) -> Iterator[Scripted]:
    (folder / "chat_template.jinja").write_text(template_source(family.name))
    template = load_template(folder)
    specials = (*family.special, family.end, *SPECIALS)
    try:
        with scripted(
            script_of(family), template=template, specials=specials, ends=(family.end, END), window=window
        ) as server:
            yield server
    finally:
        template.close()


@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.slow
def test_a_reply_that_thinks_and_calls_is_read_alike_streamed_and_whole(
    family: Family, window: int, tmp_path: Path
) -> None:
    with serving(family, tmp_path, window) as server:
        whole, streamed = server.both("find it", tools=TOOLS)
        assert (whole.status, streamed.status) == (200, 200)
        assert whole.told == streamed.told
        assert whole.body["tensorfold"]["token_sha"] == streamed.chunks[-1]["tensorfold"]["token_sha"]
        assert [(name, json.loads(arguments)) for name, arguments in whole.called] == [("find", ARGUMENTS)]
        assert whole.reasoning == ("I look." if family.thought else "")
        assert (whole.text, whole.finish) == ("Here:", "tool_calls")
        plain = server.chat("find it", stream=True)
        assert (plain.called, plain.reasoning, plain.finish) == ([], whole.reasoning, "stop")
        assert plain.text == "Here:" + family.before_call + written(family.dialect, "find", ARGUMENTS)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.slow
def test_an_agents_second_turn_holds_the_first_as_it_was_written(family: Family, tmp_path: Path) -> None:
    with serving(family, tmp_path, 1) as server, client_of(server) as client:
        first: Any = client.chat.completions.create(model="any", messages=ASKED, tools=TOOLS, temperature=0)
        message = first.choices[0].message
        result: Any = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "found-1"}
        client.chat.completions.create(
            model="any",
            messages=[*ASKED, message.model_dump(exclude_none=True), result],
            tools=TOOLS,
            temperature=0,
        )
        before, after = (server.tokenizer.decode(ids) for ids in server.prompts)
        assert after.index("find it") < after.index("Lyon") < after.index("found-1")
        assert "None" not in after
        # What was read out of the reply renders to the reply again, so a cache of prompts can go on behind it.
        reply = "".join(str(piece) for piece in script_of(family)[:-1])
        assert after.startswith(before + reply)


@contextmanager
def client_of(server: Scripted) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"http://127.0.0.1:{server.place.port}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.slow
def test_the_official_client_puts_a_streamed_call_together(family: Family, tmp_path: Path) -> None:
    with serving(family, tmp_path, 3) as server, client_of(server) as client:
        whole: Any = client.chat.completions.create(model="any", messages=ASKED, tools=TOOLS, temperature=0)
        with client.chat.completions.stream(
            model="any",
            messages=ASKED,
            tools=TOOLS,
            temperature=0,
            stream_options={"include_usage": True},
        ) as stream:
            kinds = [event.type for event in stream]
            final: Any = stream.get_final_completion()
        assert "tool_calls.function.arguments.delta" in kinds
        assert "tool_calls.function.arguments.done" in kinds
        for completion in (whole, final):
            choice = completion.choices[0]
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content == "Here:"
            (call,) = choice.message.tool_calls
            assert (call.type, call.function.name) == ("function", "find")
            assert json.loads(call.function.arguments) == ARGUMENTS
        assert whole.usage == final.usage
        thought = getattr(whole.choices[0].message, "reasoning_content", None)
        assert thought == ("I look." if family.thought else None)
        assert (whole.usage.completion_tokens_details.reasoning_tokens > 0) is bool(family.thought)


@pytest.mark.slow
def test_thinking_efforts_and_template_arguments_reach_each_template(tmp_path: Path) -> None:
    ends = {
        "qwen": ("<think>\n", "<think>\n\n</think>\n\n"),
        "nemotron": ("<think>\n", "<think></think>"),
        "glm": ("<|assistant|><think>", "<|assistant|><think></think>"),
        "gemma4": ("<|turn>model\n", "<|turn>model\n<|channel>thought\n<channel|>"),
    }
    for family in FAMILIES[:-1]:
        folder = tmp_path / family.name
        folder.mkdir()
        with serving(family, folder, 1) as server:
            off = {"chat_template_kwargs": {"enable_thinking": False}}
            for fields, end in (({}, 0), (off, 1), ({"reasoning_effort": "none"}, 1)):
                assert server.chat(max_tokens=1, **fields).status == 200
                assert server.prompt.endswith(ends[family.name][end])
            asked = {}
            for effort in ("minimal", "low", "medium", "high", "xhigh", "max"):
                assert server.chat(max_tokens=1, reasoning_effort=effort).status == 200
                asked[effort] = server.prompt
            if family.name == "glm":
                shown = {effort: text.split("Reasoning Effort: ")[1][:4] for effort, text in asked.items()}
                assert shown == {"minimal": "Low<", "low": "Low<", "medium": "High", "high": "High", "xhigh": "Max<",
                                 "max": "Max<"}  # fmt: skip
            if family.name == "qwen":
                assert ["briefly" in asked[e] for e in ("minimal", "low", "medium")] == [True, True, False]
                assert ["all the thought" in asked[e] for e in ("medium", "high", "xhigh", "max")] == [
                    False,
                    *[True] * 3,
                ]
