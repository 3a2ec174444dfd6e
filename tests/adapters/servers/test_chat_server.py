"""A client of any OpenAI-compatible server, against servers that answer as they like: well, oddly, late and never."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tensorfold.adapters.servers import chat_server
from tensorfold.adapters.servers.chat_server import HttpChatServer
from tensorfold.adapters.servers.events import EventFaultError, ReplyEvents
from tensorfold.application.ports.benchmarks import ServerFaultError, ServerRequest
from tensorfold.application.ports.checkpoints import RefusedError
from tests.fakes.chat_site import Answer, ChatSite, events, piece
from tests.fakes.clock import FakeClock

ASK = ServerRequest("m", [{"role": "user", "content": "Hi"}], 8, 0.5, 0.9, top_k=3, seed=4, ignore_eos=True)


@dataclass
class Place:
    """A server on loopback, the client of it, and what was asked: path, headers and body."""

    client: HttpChatServer
    port: int
    asked: list[tuple[str, dict[str, str], Any]]


@contextmanager
def answering(answers: Mapping[str, Answer], key: str | None = None, clock: FakeClock | None = None) -> Iterator[Place]:
    site = ChatSite(answers)
    try:
        yield Place(HttpChatServer(site.url, key, clock or FakeClock()), site.port, site.asked)
    finally:
        site.close()


def chat(body: bytes, **more: Any) -> dict[str, Answer]:
    return {"/v1/chat/completions": Answer(body, **more)}


def test_a_streamed_reply_is_its_text_its_pieces_and_the_servers_own_count() -> None:
    body = events(
        {"choices": [{"delta": {"role": "assistant"}}]},
        piece("Hel"),
        piece(""),
        piece(None),
        {"choices": [{"delta": {"reasoning_content": "hm"}}]},
        piece("lo"),
        {"choices": [], "usage": {"completion_tokens": 7}},
    )
    with answering(chat(body)) as place:
        reply = place.client.reply(ASK)
    assert (reply.text, reply.pieces, reply.tokens) == ("Helhmlo", 3, 7)
    assert reply.first_s is not None and reply.first_s <= reply.last_s <= reply.seconds


def test_the_request_carries_what_was_asked_and_the_key_and_leaves_out_what_was_not() -> None:
    with answering(chat(events(piece("x"))), key="secret") as place:
        place.client.reply(ASK)
        place.client.reply(ServerRequest("m", ASK.messages, 8, 0.0, 1.0))
    (path, headers, body), (_, _, bare) = place.asked
    assert path == "/v1/chat/completions" and headers["authorization"] == "Bearer secret"
    assert body == {
        "model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8, "temperature": 0.5,
        "top_p": 0.9, "top_k": 3, "seed": 4, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert not {"top_k", "seed", "ignore_eos"} & set(bare)


def test_times_are_counted_from_the_requests_first_byte() -> None:
    clock = FakeClock()
    answers = chat(events(piece("x")), before=lambda: clock.advance(2.5))
    with answering(answers, clock=clock) as place:
        reply = place.client.reply(ASK)
    assert (reply.first_s, reply.last_s, reply.seconds) == (2.5, 2.5, 2.5)


def test_without_usage_a_reply_has_no_count() -> None:
    for usage in (None, {}, {"completion_tokens": -1}, {"completion_tokens": True}, {"completion_tokens": "7"}, "x"):
        with answering(chat(events(piece("x", finish_reason="stop") | {"usage": usage}))) as place:
            assert place.client.reply(ASK).tokens is None


def test_a_stream_that_ends_without_done_is_a_reply_and_one_without_any_event_is_not() -> None:
    with answering(chat(events(piece("x"), done=False))) as place:
        assert place.client.reply(ASK).text == "x"
    for body in (b"", b'{"choices": [{"message": {"content": "x"}}]}'):
        with answering(chat(body)) as place, pytest.raises(ServerFaultError, match=r" sent no streamed reply\.$"):
            place.client.reply(ASK)


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "; give its key with --key"),
        (404, "; look at the path of --url"),
        (307, "; redirects are not followed"),
        (500, ""),
    ],
)
def test_another_status_is_named_with_what_to_do_and_no_redirect_is_followed(status: int, hint: str) -> None:
    answers = chat(b"secret text", status=status, headers={"Location": "/v1/models"})
    with answering(answers, key="key") as place, pytest.raises(ServerFaultError) as fault:
        place.client.reply(ASK)
    assert fault.value.message == (
        f"the server at 127.0.0.1:{place.port} answered /chat/completions with status {status}{hint}."
    )
    assert fault.value.status == status and len(place.asked) == 1


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"data: {\n\n", " sent an event that is not JSON."),
        (b"data: " + b"[" * 100_000 + b"\n\n", " sent an event that is not JSON."),
        (b"data: [1]\n\n", " sent an event that is no object."),
        (events({"error": {"message": "evil \x1b[31m text"}}), " ended a reply with an error."),
        (b"x" * ((1 << 20) + 10), " sent a longer reply than the 268435456 bytes that are read."),
    ],
)
def test_a_stream_that_is_no_reply_is_refused_in_words_of_our_own(body: bytes, told: str) -> None:
    with answering(chat(body)) as place, pytest.raises(ServerFaultError) as fault:
        place.client.reply(ASK)
    assert fault.value.message.endswith(told) and "evil" not in fault.value.message


def test_an_endless_reply_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "MOST_STREAM", 1000)
    with answering(chat(events(*[piece("x")] * 100))) as place, pytest.raises(ServerFaultError, match="longer reply"):
        place.client.reply(ASK)


def test_models_are_the_ids_that_can_be_shown() -> None:
    models = {"data": [{"id": "one"}, {"id": 7}, 3, {"id": "two\nlines"}, {"id": "x" * 257}, {"id": "two"}]}
    with answering({"/v1/models": Answer(json.dumps(models).encode())}) as place:
        assert place.client.models() == ["one", "two"]
    for body in (b"{}", b"[]", b'{"data": []}', b'{"data": {}}'):
        with answering({"/v1/models": Answer(body)}) as place, pytest.raises(ServerFaultError, match="names no model"):
            place.client.models()


def test_an_answer_that_is_no_json_or_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with answering({"/v1/models": Answer(b"<html>")}) as place:
        with pytest.raises(ServerFaultError, match=r"answered /models with no JSON\.$"):
            place.client.models()
        monkeypatch.setattr(chat_server, "MOST_ANSWER", 3)
        with pytest.raises(ServerFaultError, match=r"answered /models with more than 3 bytes\.$"):
            place.client.models()


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (Answer(b'{"state": "on"}'), "on"),
        (Answer(b'{"state": 7}'), None),
        (Answer(b'{"state": "a\\nb"}'), None),
        (Answer(b"[]"), None),
        (Answer(b"no", 404), None),
    ],
)
def test_the_records_state_is_a_short_word_or_not_stated(answer: Answer, state: str | None) -> None:
    with answering({"/v1/recall": answer}) as place:
        assert place.client.record_state() == state


def test_a_server_that_is_not_there_is_named_with_a_hint() -> None:
    with answering({}) as place:
        pass
    told = rf"^the server at 127\.0\.0\.1:{place.port} takes no connections; start it, or name another --url\.$"
    with pytest.raises(ServerFaultError, match=told):
        place.client.models()


def test_a_server_that_says_nothing_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_server, "_QUICK_S", 0.05)
    asked = threading.Event()
    with answering({"/v1/models": Answer(b"{}", before=lambda: asked.wait(10))}) as place:
        with pytest.raises(ServerFaultError, match="said nothing for 0 seconds"):
            place.client.models()
        asked.set()


def test_what_is_no_http_is_refused_without_its_text() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

        def talk() -> None:
            for _ in range(2):
                connection, _ = listening.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"SSH-2.0-evil\r\n\r\n")

        thread = threading.Thread(target=talk, daemon=True)
        thread.start()
        with pytest.raises(ServerFaultError, match=r"cannot be reached, or broke off\.$"):
            HttpChatServer(f"http://127.0.0.1:{port}/v1", None, FakeClock()).models()
        with pytest.raises(ServerFaultError, match=r"does not speak TLS that this machine trusts\.$"):
            HttpChatServer(f"https://127.0.0.1:{port}/v1", None, FakeClock()).models()
        thread.join(10)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8080",
        "ftp://x",
        "http://",
        "http://x:0",
        "http://x:99999",
        "http://a b",
        "http://\u00e9",
        "http://[x",
    ],
)
def test_a_text_that_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(RefusedError, match=r"^--url .* is no address such as http://127.0.0.1:8080/v1\.$"):
        HttpChatServer(url, None, FakeClock())


@pytest.mark.parametrize("url", ["http://me:secret@x/v1", "http://x/v1?key=secret", "http://x/v1#secret"])
def test_an_address_that_carries_more_is_refused_without_showing_it(url: str) -> None:
    with pytest.raises(RefusedError) as refused:
        HttpChatServer(url, None, FakeClock())
    assert "--key" in refused.value.message and "secret" not in refused.value.message


@pytest.mark.parametrize(
    ("url", "name"),
    [("https://example.test", "example.test:443"), ("http://[::1]:9/v1/", "::1:9"), ("http://x", "x:80")],
)
def test_a_server_is_named_by_host_and_port(url: str, name: str) -> None:
    assert HttpChatServer(url, None, FakeClock()).name == f"the server at {name}"


def test_a_reply_has_an_end_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    from tensorfold.adapters.servers import events as module

    monkeypatch.setattr(module, "MOST_TEXT", 3)
    reply = ReplyEvents()
    assert reply.take(b'data: {"choices": [{"delta": {"content": "abc"}}]}')
    with pytest.raises(EventFaultError, match="more than 3 characters"):
        reply.take(b'data: {"choices": [{"delta": {"content": "d"}}]}')
    assert not reply.take(b"event: x") and not reply.take(b'data: {"choices": [3]}') and not reply.finished
    assert not reply.take(b"data: [DONE]") and reply.finished
