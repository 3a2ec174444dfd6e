"""Text completions: raw prompts in every form, and conversations answered in the same shape."""

from __future__ import annotations

from typing import Any

import pytest

from tensorfold.application.orders import ChatOrder, CompletionOrder
from tests.entrypoints.http.fakes import FakeChat, FakeReply, Order
from tests.entrypoints.http.wire import MESSAGES, chunks_of, error_of, in_process


@pytest.mark.parametrize("path", ["/v1/completions", "/completions", "/v1/completions/"])
def test_a_completion_is_a_text_completion(path: str) -> None:
    server = in_process()
    body = server.post({"prompt": "Once", "max_tokens": 9}, path).json
    assert body["object"] == "text_completion"
    assert body["id"] == "cmpl-" + server.chat.replies[0].id
    assert body["choices"] == [{"index": 0, "text": "Hello world", "logprobs": None, "finish_reason": "stop"}]
    assert body["usage"]["total_tokens"] == 8
    assert body["tensorfold"]["engine"] == "fake"
    order = server.chat.order
    assert isinstance(order, CompletionOrder)
    assert (order.prompt, order.options.max_tokens) == ("Once", 9)


def test_a_streamed_completion_opens_with_a_comment_and_has_text_deltas() -> None:
    server = in_process()
    result = server.post(
        {"prompt": "Once", "stream": True, "stream_options": {"include_usage": True}}, "/v1/completions"
    )
    assert result.text.startswith(": ")
    chunks = chunks_of(result.text)
    assert {c["object"] for c in chunks} == {"text_completion"}
    assert [c["choices"][0]["text"] for c in chunks[:-1]] == ["Hello", " world", ""]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None, None, "stop"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize(
    ("prompt", "taken"),
    [
        ("text", "text"),
        (["text"], "text"),
        ([1, 2, 3], (1, 2, 3)),
        ([[1, 2, 3]], (1, 2, 3)),
        ([0], (0,)),
        (["x\ud800"], "x\ufffd"),
    ],
)
def test_a_prompt_is_text_or_ids_alone_or_in_a_list(prompt: Any, taken: Any) -> None:
    server = in_process()
    assert server.post({"prompt": prompt}, "/v1/completions").status_code == 200
    order = server.chat.order
    assert isinstance(order, CompletionOrder)
    assert order.prompt == taken


@pytest.mark.parametrize(
    ("prompt", "param", "code"),
    [
        (None, "prompt", None),
        ("", "prompt", None),
        ([], "prompt", None),
        ([[]], "prompt[0]", None),
        ([""], "prompt[0]", None),
        (7, "prompt", None),
        ({"text": "x"}, "prompt", None),
        ([1, -1], "prompt[1]", None),
        ([1, True], "prompt[1]", None),
        ([1, 2.0], "prompt[1]", None),
        ([1, "a"], "prompt[1]", None),
        ([[1, None]], "prompt[0][1]", None),
        (["a", "b"], "prompt", "unsupported_parameter"),
        ([[1], [2]], "prompt", "unsupported_parameter"),
    ],
)
def test_other_prompts_are_refused_by_place(prompt: Any, param: str, code: str | None) -> None:
    server = in_process()
    result = server.post({"prompt": prompt}, "/v1/completions")
    assert result.status_code == 400
    error = error_of(result)
    assert (error["param"], error["code"]) == (param, code)
    assert not server.chat.orders


def test_a_missing_prompt_is_named() -> None:
    assert error_of(in_process().post({}, "/v1/completions"))["param"] == "prompt"


@pytest.mark.parametrize(
    ("field", "value"),
    [("echo", True), ("suffix", "end"), ("best_of", 2), ("logprobs", 1), ("add_special_tokens", True), ("n", 2)],
)
def test_what_completions_do_not_offer_is_refused_by_name(field: str, value: Any) -> None:
    result = in_process().post({"prompt": "x", field: value}, "/v1/completions")
    assert result.status_code == 400
    assert (error_of(result)["param"], error_of(result)["code"]) == (field, "unsupported_parameter")


@pytest.mark.parametrize("field", ["echo", "suffix", "best_of", "logprobs", "add_special_tokens"])
def test_null_and_neutral_values_pass(field: str) -> None:
    neutral = {"echo": False, "suffix": "", "best_of": 1, "logprobs": 0, "add_special_tokens": False}
    server = in_process()
    for value in (None, neutral[field]):
        assert server.post({"prompt": "x", field: value}, "/v1/completions").status_code == 200


def test_messages_are_continued_as_a_conversation_in_the_text_shape() -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say("", (1,), reasoning="hm ")
        reply.say("four", (2,))
        reply.end()

    server = in_process(FakeChat(script))
    body = server.post({"messages": MESSAGES}, "/v1/completions").json
    assert (body["object"], body["choices"][0]["text"]) == ("text_completion", "hm four")
    assert isinstance(server.chat.order, ChatOrder)
    streamed = server.post({"messages": MESSAGES, "stream": True}, "/v1/completions")
    assert [c["choices"][0]["text"] for c in chunks_of(streamed.text)] == ["hm ", "four", ""]


def test_empty_messages_beside_a_prompt_do_not_count() -> None:
    server = in_process()
    assert server.post({"messages": [], "prompt": "x"}, "/v1/completions").status_code == 200
    assert isinstance(server.chat.order, CompletionOrder)
