"""What requests may hold: nulls, limits, choices, unknown fields and models, and conversations of every form."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.domain.conversation.template_traits import TemplateTraits
from tests.end_to_end.cases.scripted import END, scripted
from tests.fakes.tokenizer import FakeTemplate

TOOL = {"type": "function", "function": {"name": "list_files", "strict": True, "parameters": {"type": "object"}}}
CALL = {"id": "c7", "type": "function", "function": {"name": "list_files", "arguments": '{"under": "owl-1"}'}}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_null_is_no_field_at_all() -> None:
    names: tuple[str, ...] = (
        "model",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "stop",
        "seed",
    )
    names += ("tools", "tool_choice", "stream", "stream_options", "response_format", "logit_bias", "user", "n", "draft")
    with scripted() as server:
        said = server.ask({"messages": [user("hello")]} | dict.fromkeys(names))
        assert (said.status, said.text, said.finish) == (200, "yes", "stop")
        assert said.text == server.ask({"messages": [user("hello")]}).text


def test_the_newer_limit_of_tokens_counts() -> None:
    with scripted(["a"] * 60) as server:
        for fields in ({"max_completion_tokens": 3}, {"max_completion_tokens": 3, "max_tokens": 50}):
            said = server.chat(**fields)
            assert (said.status, said.text, said.finish) == (200, "aaa", "length")


@pytest.mark.parametrize(("n", "status"), [(None, 200), (1, 200), (2, 400), (0, 400)])
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.slow
def test_one_choice_is_given_and_more_or_none_are_refused(n: int | None, status: int, streamed: bool) -> None:
    with scripted() as server:
        said = server.chat(n=n, stream=streamed)
        assert said.status == status
        assert status == 200 or (said.error is not None and said.error["param"] == "n")


def test_fields_that_nobody_here_knows_are_ignored() -> None:
    messages = [
        user("hello") | {"id": "m", "agent": "a", "traceId": None, "shown": {"wide": False}},
        {"role": "assistant", "content": "hm", "reasoning_content": "r", "refusal": None, "annotations": []},
        user("go on"),
    ]
    fields = {"store": False, "metadata": {"a": "b"}, "parallel_tool_calls": True, "service_tier": "auto"}
    fields |= {"context_management": {"edits": []}, "reasoning_effort": "high", "zzz": [1], "prompt_cache_key": "k"}
    with scripted() as server:
        said = server.ask({"messages": messages, "tools": [TOOL | {"strict": True}]} | fields)
        assert (said.status, said.text) == (200, "yes")


@pytest.mark.parametrize("bias", [{"5": -100}, {"999999999": 1}, {"-1": 1}, {"abc": 1}, {"5": "x"}, [1], []])
def test_a_bias_of_tokens_is_refused_by_name_and_never_forgotten(bias: Any) -> None:
    with scripted() as server:
        said = server.chat(logit_bias=bias)
        assert said.status == 400
        assert said.error is not None
        assert said.error["param"] == "logit_bias"
        assert server.chat(logit_bias={}).status == 200


@pytest.mark.parametrize("model", ["gpt-9", "no-such", "../../etc", "", "HASH", "hash", "a/b@c", None])
def test_whatever_model_is_asked_for_the_reply_names_the_one_that_spoke(model: str | None) -> None:
    with scripted() as server:
        said = server.chat(model=model)
        assert (said.status, said.body["model"]) == (200, "hash")


@pytest.mark.parametrize("late_system", [True, False])
def test_a_system_message_reaches_the_prompt_wherever_it_stands(late_system: bool) -> None:
    template = FakeTemplate(TemplateTraits(late_system=late_system, user_runs=late_system))
    with scripted(template=template) as server:
        system = {"role": "system", "content": "owl-1"}
        late = [system, user("hello"), {"role": "system", "content": "owl-2"}, user("go on")]
        assert server.ask({"messages": late}).status == 200
        assert server.prompt.index("owl-1") < server.prompt.index("hello") < server.prompt.index("owl-2")
        assert server.prompt.index("owl-2") < server.prompt.index("go on")
        assert server.ask({"messages": [system, {"role": "system", "content": "owl-3"}, user("x")]}).status == 200
        assert server.prompt.index("owl-1") < server.prompt.index("owl-3")


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([user("x"), {"role": "owl", "content": "x"}], "messages[1].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": 7, "content": "x"}], "messages[0].role"),
        ([], "messages"),
        (None, "messages"),
        ("hello", "messages"),
        (["hello"], "messages[0]"),
        ([None], "messages[0]"),
    ],
)
def test_a_conversation_that_is_none_is_refused_with_the_place_of_what_is_wrong(messages: Any, param: str) -> None:
    with scripted() as server:
        said = server.ask({"messages": messages})
        assert said.status == 400
        assert said.error is not None
        assert said.error["param"] == param
        assert said.error["message"].startswith(param)


@pytest.mark.parametrize("null_content", [True, False])
def test_a_call_without_text_and_its_result_reach_the_prompt(null_content: bool) -> None:
    turn = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "c7", "content": "owl-2"}
    with scripted(template=FakeTemplate(TemplateTraits(null_content=null_content))) as server:
        said = server.ask({"messages": [user("find"), turn, result], "tools": [TOOL]})
        assert (said.status, said.text) == (200, "yes")
        assert server.prompt.index("find") < server.prompt.index("owl-1") < server.prompt.index("owl-2")
        assert "None" not in server.prompt
        assert "null" not in server.prompt


def test_a_result_in_parts_is_the_prompt_of_the_joined_text() -> None:
    with scripted() as server:
        for content in ([{"type": "text", "text": "owl-1"}, {"type": "text", "text": " owl-2"}], "owl-1 owl-2"):
            turn = {"role": "assistant", "content": None, "tool_calls": [CALL]}
            result = {"role": "tool", "tool_call_id": "c7", "content": content}
            assert server.ask({"messages": [user("find"), turn, result], "tools": [TOOL]}).status == 200
        assert server.prompts[0] == server.prompts[1]


def test_parts_of_text_are_the_prompt_of_the_joined_text_and_other_parts_are_refused_by_place() -> None:
    def parts(*texts: str) -> list[dict[str, str]]:
        return [{"type": "text", "text": text} for text in texts]

    system = {"role": "system", "content": "owl-0"}
    with scripted() as server:
        assert server.ask({"messages": [system, user("owl-1owl-2")]}).status == 200
        in_parts = [{"role": "system", "content": parts("owl-0")}, user(parts("owl-1", "owl-2"))]
        assert server.ask({"messages": in_parts}).status == 200
        assert server.prompts[0] == server.prompts[1]
        assert server.chat([]).status == server.chat("").status == 200
        assert server.prompts[2] == server.prompts[3]
        image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
        for part, place in (({"text": "x"}, "messages[0].content[1]"), (image, "messages[0].content[1]")):
            said = server.chat([*parts("x"), part])
            assert said.status == 400
            assert said.error is not None
            assert said.error["param"] == place
            assert place in said.error["message"]


@pytest.mark.slow
def test_three_prompts_of_every_kind_get_the_same_reply_with_drafts_and_without() -> None:
    prompts = (
        "def owl(a, b):\n    return a + b\n",
        "one, two, one, two, one, two, one,",
        "The owl said nothing at all.",
    )
    with scripted(["on ", "and "] * 150 + [END], window=4) as server:
        for prompt in prompts:
            drafted, serial = server.chat(prompt, max_tokens=400), server.chat(prompt, max_tokens=400, draft=False)
            assert (drafted.text, drafted.finish, drafted.usage) == (serial.text, serial.finish, serial.usage)
            assert drafted.body["tensorfold"]["token_sha"] == serial.body["tensorfold"]["token_sha"]
            assert drafted.body["tensorfold"]["rounds"] < serial.body["tensorfold"]["rounds"]
