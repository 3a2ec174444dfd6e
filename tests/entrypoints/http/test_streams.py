"""A streamed reply, event by event, and the same reply as one body."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tensorfold.application.replies import token_sha
from tests.entrypoints.http.fakes import FakeChat, FakeReply, Order, spelled
from tests.entrypoints.http.wire import MESSAGES, InProcess, checked_error, chunks_of, error_of, in_process


def stream(server: InProcess, **fields: Any) -> list[dict[str, Any]]:
    """The chunks of a streamed chat."""
    result = server.ask(stream=True, **fields)
    assert result.status_code == 200, result.text
    return chunks_of(result.text)


def content(chunks: list[dict[str, Any]]) -> str:
    return "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])


def test_a_stream_has_the_shape_clients_expect_chunk_by_chunk() -> None:
    server = in_process()
    result = server.ask(stream=True)
    assert result.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert result.headers["cache-control"] == "no-cache"
    assert result.headers["x-accel-buffering"] == "no"
    chunks = chunks_of(result.text)
    assert len({(c["id"], c["created"], c["model"], c["object"], c["system_fingerprint"]) for c in chunks}) == 1
    assert chunks[0]["id"] == "chatcmpl-" + server.chat.replies[0].id
    assert chunks[0]["object"] == "chat.completion.chunk"
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [c["choices"][0]["delta"] for c in chunks[1:]] == [{"content": "Hello"}, {"content": " world"}, {}]
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, None, None, "stop"]
    assert all(c["choices"][0]["index"] == 0 for c in chunks)
    assert [("usage" in c, "tensorfold" in c) for c in chunks] == [(False, False)] * 3 + [(True, True)]


def test_the_body_says_what_the_stream_says() -> None:
    server = in_process()
    last = stream(server)[-1]
    body = server.ask().json
    assert body["object"] == "chat.completion"
    assert body["id"] == "chatcmpl-" + server.chat.replies[1].id
    assert body["created"] == server.chat.replies[1].created
    assert body["usage"] == last["usage"]
    assert body["tensorfold"] == last["tensorfold"]
    assert body["system_fingerprint"] == last["system_fingerprint"]
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello world"},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]


def test_usage_and_figures_are_those_of_the_reply() -> None:
    body = in_process().ask(draft=False, temperature=0.5).json
    assert body["usage"] == {
        "prompt_tokens": 2,
        "completion_tokens": 4,
        "total_tokens": 6,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
    assert body["tensorfold"] == {
        "token_sha": token_sha((1, 2, 3, 0)),
        "queue_s": 0.25,
        "prefill_s": 0.5,
        "ttft_s": 0.75,
        "decode_s": 2.0,
        "tokens_per_second": 1.5,
        "rounds": 2,
        "drafted": 4,
        "accepted": 3,
        "cached": 1,
        "drafts": False,
        "sampling": "exact",
        "engine": "fake",
    }


def test_with_include_usage_one_chunk_after_the_finish_has_it_and_no_other() -> None:
    chunks = stream(in_process(), stream_options={"include_usage": True})
    assert [c["choices"] == [] for c in chunks] == [False] * 4 + [True]
    assert [bool(c.get("usage")) for c in chunks] == [False] * 4 + [True]
    usage = chunks[-1]["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert "tensorfold" in chunks[-2]


def test_usage_can_ride_on_every_chunk() -> None:
    chunks = stream(in_process(), stream_options={"include_usage": True, "continuous_usage_stats": True})
    counts = [c["usage"]["completion_tokens"] for c in chunks[1:]]
    assert counts == [2, 3, 4, 4]
    assert all(c["usage"]["prompt_tokens"] == 2 for c in chunks[1:])
    alone = stream(in_process(), stream_options={"continuous_usage_stats": True})
    assert [bool(c.get("usage")) for c in alone] == [False, False, False, True]


@pytest.mark.parametrize("streamed", [False, True])
def test_token_ids_come_when_asked_for(streamed: bool) -> None:
    server = in_process()
    last = stream(server, return_token_ids=True)[-1] if streamed else server.ask(return_token_ids=True).json
    assert last["tensorfold"]["token_ids"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("asked", "shown"),
    [("org/tiny", "org/tiny"), ("tiny", "tiny"), ("gpt-4o", "org/tiny"), ("../../etc", "org/tiny"), ("", "org/tiny")],
)
def test_the_model_shown_is_a_served_one_whatever_was_asked(asked: str, shown: str) -> None:
    server = in_process()
    assert server.ask(model=asked).json["model"] == shown
    assert {c["model"] for c in stream(server, model=asked)} == {shown}


def test_held_back_text_comes_before_the_finish_and_empty_deltas_never() -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say("", (1,))
        reply.say("ab", (2,))
        reply.say("", (3,))
        reply.end("length", text="c", ids=(1, 2, 3))

    server = in_process(FakeChat(script))
    chunks = stream(server)
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "ab", "c", None]
    assert server.ask().json["choices"][0]["message"]["content"] == "abc"


def test_reasoning_has_a_key_of_its_own() -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say("", (1,), reasoning="I think")
        reply.say("four", (2,), reasoning=".")
        reply.end()

    server = in_process(FakeChat(script))
    deltas = [c["choices"][0]["delta"] for c in stream(server)[1:-1]]
    assert deltas == [{"reasoning_content": "I think"}, {"reasoning_content": "."}, {"content": "four"}]
    assert server.ask().json["choices"][0]["message"] == {
        "role": "assistant",
        "content": "four",
        "reasoning_content": "I think.",
    }


@pytest.mark.parametrize("cut", [1, 2, 3, 8])
def test_characters_spelled_in_several_tokens_are_never_split(cut: int) -> None:
    tokens = (b"\xf0\x9f", b"\x98", b"\x80", b" ", b"\xc4", b"\x8f", b"bel")
    server = in_process(FakeChat(spelled(*tokens, cut=cut)))
    chunks = stream(server, max_tokens=32)
    assert content(chunks) == "😀 ďbel"
    assert "\ufffd" not in json.dumps(chunks, ensure_ascii=False)
    assert server.ask(max_tokens=32).json["choices"][0]["message"]["content"] == "😀 ďbel"


@pytest.mark.parametrize("cut", [1, 2])
def test_a_reply_cut_inside_a_character_ends_the_same_streamed_or_whole(cut: int) -> None:
    server = in_process(FakeChat(spelled(b"ok", b"\xf0\x9f", b"\x98", b"\x80", cut=cut)))
    chunks = stream(server, max_tokens=2)
    body = server.ask(max_tokens=2).json
    assert content(chunks) == body["choices"][0]["message"]["content"] == "ok\ufffd"
    assert chunks[-1]["choices"][0]["finish_reason"] == body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize("cut", [1, 2, 3, 7])
def test_a_stop_string_over_several_tokens_is_not_shown(cut: int) -> None:
    letters = (b"L", b" M", b" N", b" O", b" P", b" Q", b" R")
    server = in_process(FakeChat(spelled(*letters, cut=cut)))
    chunks = stream(server, stop=["O P Q"], max_tokens=32)
    assert content(chunks) == "L M N "
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert server.ask(stop=["O P Q"], max_tokens=32).json["choices"][0]["message"]["content"] == "L M N "


def test_the_bytes_of_a_stream_are_ascii_so_that_no_reader_splits_a_line_elsewhere() -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say("a\u2028b\x85c\x0bd\re\nf😀", (1,))
        reply.end()

    server = in_process(FakeChat(script))
    result = server.ask(stream=True)
    assert result.text.isascii()
    assert all(line.startswith("data: ") or not line for line in result.text.splitlines())
    assert content(chunks_of(result.text)) == "a\u2028b\x85c\x0bd\re\nf😀"


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        (None, 500, "server_error"),
        ("engine", 500, "server_error"),
        ("context_length_exceeded", 400, "invalid_request_error"),
        ("overloaded", 503, "server_error"),
    ],
)
def test_a_reply_that_fails_is_one_error_event_and_the_end_or_a_status(
    code: str | None, status: int, kind: str
) -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say("a")
        reply.say("b")
        reply.fail("The request failed inside the engine.", code)

    server = in_process(FakeChat(script))
    result = server.ask(stream=True)
    assert result.status_code == 200
    *chunks, error, end = [event for event in result.text.split("\n\n") if event]
    assert end == "data: [DONE]"
    found = checked_error(error.removeprefix("data: "))
    assert (found["type"], found["code"]) == (kind, code)
    assert found["message"] == "The request failed inside the engine."
    assert all(json.loads(c.removeprefix("data: "))["choices"][0]["finish_reason"] is None for c in chunks)
    whole = server.ask()
    assert whole.status_code == status
    assert (error_of(whole)["type"], error_of(whole)["code"]) == (kind, code)
    assert (whole.headers.get("x-should-retry") == "false") == (status == 500)
    assert server.gate.inside == 0
    assert all(reply.cancelled.is_set() for reply in server.chat.replies)


def test_a_fault_while_a_stream_is_written_is_an_error_event_without_its_text() -> None:
    def script(reply: FakeReply, order: Order) -> None:
        reply.say("a")
        reply.push(RuntimeError("secret detail"))

    server = in_process(FakeChat(script))
    result = server.ask(stream=True)
    *_, error, end = [event for event in result.text.split("\n\n") if event]
    assert end == "data: [DONE]"
    assert "secret" not in result.text
    assert checked_error(error.removeprefix("data: "))["type"] == "server_error"
    assert [str(broken) for _, broken in server.told.faults] == ["secret detail"]
    assert server.chat.replies[0].cancelled.is_set()
    assert server.gate.inside == 0
    whole = server.ask()
    assert whole.status_code == 500
    assert "secret" not in whole.text
    assert server.chat.replies[1].cancelled.is_set()


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_left_while_its_request_was_read_never_starts_one(streamed: bool) -> None:
    server = in_process()
    body = json.dumps({"messages": MESSAGES, "stream": streamed}).encode()
    gone = {"waitress.client_disconnected": lambda: True}
    server.client.simulate_post("/v1/chat/completions", body=body, extras=gone)
    assert not server.chat.orders
    assert (server.gate.inside, server.gate.disconnections) == (0, 1)
    assert [record.line().split()[-1] for record in server.told.access] == ["end=left"]


def test_every_reply_is_let_go_of_once_it_is_whole() -> None:
    server = in_process()
    server.ask()
    server.ask(stream=True)
    assert [reply.cancels for reply in server.chat.replies] == [1, 1]
    assert server.gate.inside == 0
    assert server.gate.disconnections == 0
