"""Every field of a generation request: what is taken, what it becomes, and what each refusal says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.application.orders import ChatOrder, ReplyOptions
from tensorfold.domain.gates.grammar import Grammar, GrammarKind
from tensorfold.entrypoints.http.chat_request import ChatRequest
from tests.entrypoints.http.wire import MESSAGES, in_process

CHAT = "/v1/chat/completions"


def options_of(**fields: Any) -> ReplyOptions:
    server = in_process()
    result = server.ask(**fields)
    assert result.status_code == 200, result.text
    return server.chat.order.options


def order_of(**fields: Any) -> ChatOrder:
    server = in_process()
    result = server.ask(**fields)
    assert result.status_code == 200, result.text
    order = server.chat.order
    assert isinstance(order, ChatOrder)
    return order


def test_a_request_of_messages_alone_leaves_everything_to_the_server() -> None:
    assert options_of() == ReplyOptions()


def test_every_optional_field_may_be_null() -> None:
    null = dict.fromkeys(ChatRequest.model_fields.keys() - {"messages"})
    assert len(null) > 40
    assert options_of(**null, user=None) == ReplyOptions()


def test_unknown_fields_are_ignored() -> None:
    unknown = {"store": False, "metadata": {"s": 1}, "service_tier": "auto", "frobnicate": [1], "prompt_cache_key": "k"}
    assert options_of(**unknown) == ReplyOptions()


@pytest.mark.parametrize(
    ("field", "value", "taken"),
    [
        ("max_tokens", 3, 3),
        ("max_tokens", "3", 3),
        ("max_tokens", 3.0, 3),
        ("max_completion_tokens", 9, 9),
        ("temperature", 0, 0.0),
        ("temperature", "0.5", 0.5),
        ("temperature", 1e-3, 0.001),
        ("top_p", 1, 1.0),
        ("top_p", ".25", 0.25),
        ("top_k", -1, -1),
        ("top_k", 0, 0),
        ("top_k", "40", 40),
        ("min_p", 0, 0.0),
        ("min_p", 1, 1.0),
        ("seed", -(2**63), -(2**63)),
        ("seed", 2**64 - 1, 2**64 - 1),
        ("seed", "12345678901234567", 12345678901234567),
        ("ignore_eos", True, True),
        ("draft", False, False),
    ],
)
def test_a_value_in_range_reaches_the_application(field: str, value: Any, taken: Any) -> None:
    name = "max_tokens" if field == "max_completion_tokens" else field
    got = getattr(options_of(**{field: value}), name)
    assert got == taken
    assert type(got) is type(taken)


def test_the_newer_limit_wins_over_the_older() -> None:
    assert options_of(max_tokens=50, max_completion_tokens=3).max_tokens == 3


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens", "top_k", "seed", "n", "min_tokens"])
@pytest.mark.parametrize("value", [True, 1.5, "1.5", "three", "", [1], {}, "0x10", "1_0"])
def test_what_is_no_integer_is_refused_in_the_same_words(field: str, value: Any) -> None:
    error = in_process().refused(**{field: value})
    assert error["message"] == f"{field} must be an integer or null."
    assert error["param"] == field


@pytest.mark.parametrize("field", ["temperature", "top_p", "min_p", "frequency_penalty", "repetition_penalty"])
@pytest.mark.parametrize("value", [False, "warm", "nan", "inf", "1e400", [0.5], {}, "1_0"])
@pytest.mark.slow
def test_what_is_no_number_is_refused_in_the_same_words(field: str, value: Any) -> None:
    error = in_process().refused(**{field: value})
    assert error["message"] == f"{field} must be a finite number or null."
    assert error["param"] == field


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_a_number_that_is_not_finite_is_refused_by_field(text: str) -> None:
    server = in_process()
    body = f'{{"messages":{json.dumps(MESSAGES)},"temperature":{text}}}'
    result = server.post(body.encode())
    assert result.status_code == 400
    assert result.json["error"]["message"] == "temperature must be a finite number or null."


@pytest.mark.parametrize(
    "field",
    ["stream", "ignore_eos", "draft", "return_token_ids", "parallel_tool_calls", "include_stop_str_in_output"],
)
@pytest.mark.parametrize("value", [0, 1, "true", "", [], {}])
def test_a_boolean_must_be_a_json_boolean(field: str, value: Any) -> None:
    error = in_process().refused(**{field: value})
    assert error["message"] == f"{field} must be true, false or null."


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("max_tokens", 0, "max_tokens is 0; it must be from 1 to 2147483647."),
        ("max_tokens", -1, "max_tokens is -1; it must be from 1 to 2147483647."),
        ("max_completion_tokens", 0, "max_completion_tokens is 0; it must be from 1 to 2147483647."),
        ("max_tokens", 10**4000, "max_tokens must be from 1 to 2147483647."),
        ("temperature", -0.1, "temperature is -0.1; it must be 0 or more."),
        ("top_p", 0, "top_p is 0; it must be above 0 and at most 1."),
        ("top_p", 1.01, "top_p is 1.01; it must be above 0 and at most 1."),
        ("min_p", -0.5, "min_p is -0.5; it must be from 0 to 1."),
        ("min_p", 2, "min_p is 2; it must be from 0 to 1."),
        ("top_k", 2**40, "top_k must be a 32-bit integer."),
        ("seed", 2**64, "seed must be a 64-bit integer."),
        ("seed", -(2**63) - 1, "seed must be a 64-bit integer."),
        ("n", 0, "n is 0; it must be 1."),
        ("model", 7, "model must be a string or null."),
        ("stream_options", [], "stream_options must be an object or null."),
        ("priority", "urgent", 'priority must be "foreground", "background" or null.'),
        ("logit_bias", [1], "logit_bias must be an object or null."),
    ],
)
def test_a_value_out_of_range_names_itself_and_its_limit(field: str, value: Any, message: str) -> None:
    error = in_process().refused(**{field: value})
    assert (error["message"], error["param"], error["code"]) == (message, field, None)
    assert error["type"] == "invalid_request_error"


def test_a_refusal_inside_an_object_names_the_path() -> None:
    error = in_process().refused(stream_options={"include_usage": "yes"})
    assert error["message"] == "stream_options.include_usage must be true, false or null."
    assert error["param"] == "stream_options.include_usage"


@pytest.mark.parametrize(
    ("stop", "taken"),
    [(None, ()), ([], ()), ("x", ("x",)), (["a", "b"], ("a", "b")), ("\0", ("\0",)), (list("abcde"), tuple("abcde"))],
)
def test_stop_is_nothing_a_string_or_a_list(stop: Any, taken: tuple[str, ...]) -> None:
    assert options_of(stop=stop).stops == taken


@pytest.mark.parametrize(
    ("stop", "param", "message"),
    [
        ("", "stop", "stop is empty; a stop string needs at least one character."),
        ([""], "stop[0]", "stop[0] is empty; a stop string needs at least one character."),
        (["a", 1], "stop[1]", "stop[1] must be a string."),
        ([None], "stop[0]", "stop[0] must be a string."),
        (["x" * 1025], "stop[0]", "stop[0] has 1025 characters; at most 1024 are taken."),
        (7, "stop", "stop must be null, a string or a list of strings."),
        (list("abcdefghijklmnopq"), "stop", "stop holds 17 stop strings; at most 16 are taken."),
    ],
)
def test_odd_stops_are_refused_and_never_end_a_reply(stop: Any, param: str, message: str) -> None:
    error = in_process().refused(stop=stop)
    assert (error["param"], error["message"]) == (param, message)


@pytest.mark.parametrize(
    ("field", "neutral"),
    [
        ("n", 1),
        ("n", "1"),
        ("best_of", 1),
        ("min_tokens", 0),
        ("frequency_penalty", 0),
        ("presence_penalty", 0.0),
        ("repetition_penalty", 1),
        ("logit_bias", {}),
        ("logprobs", False),
        ("top_logprobs", 0),
        ("response_format", {"type": "text"}),
        ("structured_outputs", {}),
        ("thinking_budget", 0),
        ("stop_token_ids", []),
        ("bad_words", []),
        ("include_stop_str_in_output", False),
        ("use_beam_search", False),
        ("echo", False),
        ("functions", []),
        ("function_call", "auto"),
        ("tool_choice", "none"),
        ("parallel_tool_calls", False),
    ],
)
def test_a_value_that_changes_nothing_is_accepted(field: str, neutral: Any) -> None:
    assert options_of(**{field: neutral}) == ReplyOptions()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("best_of", 2),
        ("min_tokens", 5),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -0.5),
        ("repetition_penalty", 1.1),
        ("logit_bias", {"5": -100}),
        ("logit_bias", {"999999999": 1}),
        ("logit_bias", {"-1": 1}),
        ("logit_bias", {"abc": 1}),
        ("logit_bias", {"5": "x"}),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("prompt_logprobs", 1),
        ("structured_outputs", {"structural_tag": "a"}),
        ("stop_token_ids", [2]),
        ("bad_words", ["x"]),
        ("allowed_token_ids", [1]),
        ("include_stop_str_in_output", True),
        ("use_beam_search", True),
        ("echo", True),
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_honoured_is_refused_by_name_before_the_stream(field: str, value: Any, stream: bool) -> None:
    error = in_process().refused(**{field: value, "stream": stream})
    assert error["code"] == "unsupported_parameter"
    assert error["param"] == field
    assert error["message"].startswith(f"{field} ")


@pytest.mark.parametrize(
    ("field", "value", "kind", "text"),
    [
        ("response_format", {"type": "json_object"}, "json_schema", '{"type": "object"}'),
        ("response_format", {"type": "json_schema", "json_schema": {"schema": {"a": 1}}}, "json_schema", '{"a": 1}'),
        ("response_format", {"type": "json_schema", "json_schema": {"name": "x"}}, "json_schema", '{"type": "object"}'),
        ("guided_json", {"type": "integer"}, "json_schema", '{"type": "integer"}'),
        ("guided_json", '{"type": "integer"}', "json_schema", '{"type": "integer"}'),
        ("guided_regex", "a*", "regex", "a*"),
        ("guided_choice", ["a", "b"], "choices", '["a", "b"]'),
        ("guided_grammar", 'start: "a"', "lark", 'start: "a"'),
        ("structured_outputs", {"json": {"type": "null"}, "regex": None}, "json_schema", '{"type": "null"}'),
        ("structured_outputs", {"json_object": True}, "json_schema", '{"type": "object"}'),
        ("structured_outputs", {"choice": ["x"]}, "choices", '["x"]'),
    ],
)
def test_a_form_of_the_reply_becomes_a_grammar(field: str, value: Any, kind: str, text: str) -> None:
    options = options_of(**{field: value})
    assert options.grammar == Grammar(GrammarKind(kind), text) and options.grammar_field == field


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}},
            "response_format.json_schema.schema",
        ),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[1]"}, "guided_json"),
        ({"guided_json": 5}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_regex": 5}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": ["a", ""]}, "guided_choice[1]"),
        ({"guided_choice": ["a"] * 1025}, "guided_choice"),
        ({"structured_outputs": {"choice": ["a", 5]}}, "structured_outputs.choice[1]"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": "yes"}}, "structured_outputs.json_object"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_regex"),
        ({"thinking_budget": -1}, "thinking_budget"),
        ({"thinking_budget": "many"}, "thinking_budget"),
    ],
)
def test_a_malformed_form_is_named(fields: dict[str, Any], param: str) -> None:
    error = in_process().refused(**fields)
    assert (error["param"], error["code"]) == (param, None)
    assert error["message"].startswith(param)


def test_a_thinking_budget_travels_with_the_order() -> None:
    assert options_of(thinking_budget=7).thinking_budget == 7


@pytest.mark.parametrize(
    ("choice", "must", "name"),
    [
        ("auto", False, None),
        ("required", True, None),
        ({"type": "function", "function": {"name": "f"}}, True, "f"),
        ({"type": "function", "name": "f"}, True, "f"),
    ],
)
def test_a_forced_call_travels_with_the_order(choice: Any, must: bool, name: str | None) -> None:
    order = order_of(tools=[{"type": "function", "function": {"name": "f"}}], tool_choice=choice)
    assert (order.must_call, order.call_name) == (must, name)


def test_a_response_format_of_no_known_type_is_malformed() -> None:
    error = in_process().refused(response_format={"type": "xml"})
    assert (error["param"], error["code"]) == ("response_format.type", None)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([{"role": "banana", "content": "x"}], "messages[0].role"),
        ([{"content": "x"}], "messages[0].role"),
        ([{"role": 7, "content": "x"}], "messages[0].role"),
        ([], "messages"),
        ("hello", "messages"),
        (["hello"], "messages[0]"),
        (None, "messages"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": 5}], "messages[1].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "messages[0].content[0]"),
        ([{"role": "function", "content": "x"}], "messages[0].role"),
    ],
)
def test_a_malformed_message_is_named(messages: Any, param: str) -> None:
    error = in_process().refused(messages=messages)
    assert error["param"] == param
    assert error["message"].startswith(param)


def test_missing_messages_are_named() -> None:
    result = in_process().post({"model": "m"})
    assert result.status_code == 400
    assert result.json["error"]["param"] == "messages"


def test_messages_reach_the_application_as_they_were_sent() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}], "id": "m1", "opts": {"visible": False}}]
    assert order_of(messages=messages).messages == messages


def test_the_priority_field_decides_and_title_requests_yield_by_themselves() -> None:
    title = [{"role": "system", "content": "You are a title generator."}, {"role": "user", "content": "hi"}]
    assert options_of(priority="background").background
    assert options_of(messages=title).background
    assert not options_of(messages=title, priority="foreground").background
    assert not options_of(messages=[*title, {"role": "user", "content": "x" * 5000}]).background
    assert not options_of(messages=[{"role": "user", "content": "a title please"}]).background
    tool = {"type": "function", "function": {"name": "f"}}
    assert not options_of(messages=title, tools=[tool]).background


def test_the_keys_label_travels_with_the_order() -> None:
    server = in_process(keys={"cli-1": "secret"})
    assert server.ask().status_code == 401
    assert not server.chat.orders
    server.post({"messages": MESSAGES}, headers={"Authorization": "Bearer secret"})
    assert server.chat.order.options.label == "cli-1"


def test_tools_come_nested_or_flat_and_lose_strict() -> None:
    parameters = {"type": "object", "properties": {}}
    nested = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    flat = {"type": "function", "name": "g", "description": "d", "parameters": None, "strict": False}
    assert order_of(tools=[nested, flat]).tools == [
        {"type": "function", "function": {"name": "f", "parameters": parameters}},
        {"type": "function", "function": {"name": "g", "description": "d"}},
    ]


@pytest.mark.parametrize("tools", [None, []])
def test_no_tools_are_none(tools: Any) -> None:
    assert order_of(tools=tools).tools is None


def test_tool_choice_none_hides_the_tools() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    assert order_of(tools=[tool], tool_choice="none").tools is None
    assert order_of(tools=[tool], tool_choice="auto").tools == [tool]


@pytest.mark.parametrize(
    ("tools", "param"),
    [
        ("f", "tools"),
        (["f"], "tools[0]"),
        ([{"type": "web_search"}], "tools[0].type"),
        ([{"type": "function", "function": "f"}], "tools[0].function"),
        ([{"type": "function", "function": {"name": ""}}], "tools[0].function.name"),
        ([{"type": "function"}], "tools[0].name"),
        ([{"name": "f", "parameters": []}], "tools[0].parameters"),
        ([{"name": "f"}] * 1025, "tools"),
    ],
)
def test_a_malformed_tool_is_named(tools: Any, param: str) -> None:
    assert in_process().refused(tools=tools)["param"] == param


@pytest.mark.parametrize(
    ("choice", "tools", "code"),
    [
        ("required", [], None),
        ({"type": "function", "function": {"name": "g"}}, ["f"], None),
        ({"type": "function", "name": "f"}, [], None),
        ("sometimes", ["f"], None),
        ({"type": "function"}, ["f"], None),
        (7, ["f"], None),
    ],
)
def test_a_choice_that_the_tools_cannot_meet_is_refused_by_name(
    choice: Any, tools: list[str], code: str | None
) -> None:
    listed = [{"type": "function", "function": {"name": name}} for name in tools]
    error = in_process().refused(tools=listed, tool_choice=choice)
    assert (error["param"], error["code"]) == ("tool_choice", code)


@pytest.mark.parametrize(
    ("fields", "variables"),
    [
        ({}, {}),
        ({"reasoning_effort": "high"}, {"reasoning_effort": "high"}),
        ({"reasoning_effort": "none"}, {"enable_thinking": False}),
        ({"chat_template_kwargs": {"reasoning_effort": "low", "x": [1]}}, {"reasoning_effort": "low", "x": [1]}),
        (
            {"reasoning_effort": "max", "chat_template_kwargs": {"reasoning_effort": "low"}},
            {"reasoning_effort": "max"},
        ),
        ({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": True}}, {"enable_thinking": True}),
        ({"chat_template_kwargs": {"thinking": {"type": "disabled"}}}, {"enable_thinking": False}),
        ({"chat_template_kwargs": {"thinking": {"type": "enabled"}}}, {"enable_thinking": True}),
        ({"chat_template_kwargs": {"thinking": False, "enable_thinking": True}}, {"enable_thinking": True}),
        ({"chat_template_kwargs": {"thinking": True, "enable_thinking": None}}, {"enable_thinking": True}),
    ],
)
def test_thinking_becomes_template_variables(fields: dict[str, Any], variables: dict[str, Any]) -> None:
    assert order_of(**fields).template_variables == variables


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "extreme"}, "reasoning_effort"),
        ({"reasoning_effort": 3}, "reasoning_effort"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"thinking": 1}}, "chat_template_kwargs.thinking"),
        ({"chat_template_kwargs": {"thinking": {"type": "x"}}}, "chat_template_kwargs.thinking"),
        ({"chat_template_kwargs": {"reasoning_effort": "x"}}, "chat_template_kwargs.reasoning_effort"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs.tools"),
    ],
)
def test_malformed_thinking_is_named(fields: dict[str, Any], param: str) -> None:
    assert in_process().refused(**fields)["param"] == param
