"""HTTP as clients get it wrong or odd: broken bodies, encodings, methods, paths, origins, departures and crowds."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time

import pytest

from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.settings import EngineSettings, HttpSettings
from tests.end_to_end.cases.scripted import CHAT, END, Said, scripted
from tests.end_to_end.clients import Client, ask, post_bytes
from tests.end_to_end.hash_server import asked, hash_model, hash_server, until
from tests.fakes.paced_model import PacedModel

WORDS = ("ONE", "TWO", "SIX", "TEN", "OWL", "HEN", "FOX", "BEE", "ANT", "COW", "PIG", "RAT", "CAT", "DOG", "EEL", "ELK")
GOOD = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}


@pytest.mark.parametrize(
    "body", [b"{no json", b'{"model":"m","stream":true,x}', b"", b'{"a":1,}', b'{"a":1}{"b":2}', b"nul", b"[]"]
)
def test_a_body_that_is_no_json_object_is_a_400_in_json(body: bytes) -> None:
    with scripted() as server:
        said = server.ask(body, content_type="application/json")
        assert said.status == 400
        assert said.headers["content-type"] == "application/json"
        assert said.error is not None
        assert said.error["type"] == "invalid_request_error"
        assert server.alive()


@pytest.mark.slow
def test_a_packed_body_is_read_and_one_that_lies_or_swells_is_refused() -> None:
    raw = json.dumps(GOOD).encode()
    with scripted() as server:
        assert server.ask(gzip.compress(raw), content_encoding="gzip").text == "yes"
        lie = server.ask(raw, content_encoding="gzip")
        assert lie.status == 400
        assert lie.error is not None
        assert "gzip" in lie.error["message"]
        other = server.ask(raw, content_encoding="br")
        assert other.status == 400
        assert other.error is not None
        assert "Content-Encoding" in other.error["message"]
        assert server.ask(gzip.compress(b" " * (64 << 20), 9), content_encoding="gzip").status == 413
        assert server.alive()


def test_a_page_asks_beforehand_without_a_key_and_its_request_without_one_is_refused() -> None:
    page = "http://localhost:3000"
    listening = HttpSettings(port=0, keys=(("k", "secret"),), origins=(page,))
    with scripted(listening=listening) as server:
        wanted = {"Access_Control_Request_Method": "POST"}
        wanted["Access_Control_Request_Headers"] = "authorization,content-type"
        for path in (CHAT, "/v1/models"):
            said = server.call("OPTIONS", path, None, Origin=page, **wanted)
            assert said.status == 200
            assert said.headers["access-control-allow-origin"] == page
            assert "POST" in said.headers["access-control-allow-methods"]
            assert "GET" in said.headers["access-control-allow-methods"]
            allowed = said.headers["access-control-allow-headers"]
            assert "authorization" in allowed
            assert "content-type" in allowed
        closed = server.ask(GOOD, Origin=page)
        assert closed.status == 401
        assert closed.headers["access-control-allow-origin"] == page
        assert server.call("GET", "/v1/models").status == 401
        assert server.ask(GOOD, Authorization="Bearer secret").status == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/v1/models", 200),
        ("HEAD", "/health", 200),
        ("GET", CHAT, 405),
        ("PUT", "/v1/models", 405),
        ("PATCH", CHAT, 405),
        ("GET", "/v1/models/", 200),
        ("GET", "//v1/models", 200),
        ("GET", "/v1/v1/models", 404),
        ("GET", "/V1/MODELS", 404),
    ],
)
@pytest.mark.slow
def test_odd_methods_and_paths_are_answered_in_json(method: str, path: str, status: int) -> None:
    with scripted() as server:
        said = server.call(method, path)
        assert said.status == status
        assert said.headers["content-type"] == "application/json"
        assert (said.raw == "") == (method == "HEAD")
        assert (status == 405) == ("allow" in said.headers)
        assert status == 200 or (said.error is not None and said.error["message"].endswith("."))


@pytest.mark.parametrize(
    "kind",
    ["application/x-www-form-urlencoded", "text/plain", "", "application/json; charset=utf-8", "x; charset=utf-16"],
)
@pytest.mark.slow
def test_json_is_read_whatever_its_type_is_said_to_be(kind: str) -> None:
    with scripted() as server:
        assert server.ask(GOOD, Content_Type=kind).text == "yes"


def test_json_that_is_really_utf_16_is_refused() -> None:
    with scripted() as server:
        said = server.ask(json.dumps(GOOD).encode("utf-16"), Content_Type="application/json; charset=utf-16")
        assert said.status == 400
        assert server.alive()


def paced(inner: TargetModel) -> TargetModel:
    """A model of two milliseconds a round and a row of a prompt."""
    return PacedModel(inner, time.sleep, 0.002, 0.002)


def test_a_client_that_leaves_a_long_reply_frees_the_one_lane_for_the_next_at_once() -> None:
    with scripted(["on"] * 3000, wrap=paced, settings=EngineSettings(parallel=1)) as server:
        client = Client(server.place.port)
        client.send(post_bytes(CHAT, json.dumps(GOOD | {"stream": True, "max_tokens": 3000}).encode()))
        client.receive_events(4)
        client.leave("reset")
        assert server.chat(max_tokens=2).text == "onon"
        server.place.until_empty()
        assert server.place.counters.completion_tokens < 1000
        assert server.place.counters.cancelled == 1


@pytest.mark.slow
def test_clients_that_leave_while_their_prompt_is_read_stop_its_reading() -> None:
    with scripted(wrap=paced, settings=EngineSettings(parallel=1)) as server:
        for number in range(8):
            client = Client(server.place.port)
            body = {"messages": [{"role": "user", "content": "owl " * 900}], "stream": number % 2 == 0}
            client.send(post_bytes(CHAT, json.dumps(body).encode()))
            until(lambda: server.place.scheduler.loads()[1] > 0, "a prompt that is read")
            client.leave("close")
            server.place.until_empty()
        # Each prompt has 3,600 rows; a fraction of them was read.
        assert server.place.counters.filled_tokens < 8 * 1800
        assert server.alive()


def test_a_client_that_reads_nothing_holds_up_nobody() -> None:
    with scripted(["x" * 4000] * 400, settings=EngineSettings(parallel=2)) as server:
        with socket.socket() as stuck:
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stuck.connect(("127.0.0.1", server.place.port))
            stuck.sendall(post_bytes(CHAT, json.dumps(GOOD | {"stream": True, "max_tokens": 400}).encode()))
            until(lambda: server.place.counters.requests > 0, "the stuck request")
            assert server.chat(max_tokens=2).text == "x" * 8000
        assert server.alive()


@pytest.mark.slow
def test_sixteen_clients_at_once_each_get_the_reply_they_get_alone() -> None:
    cases = [
        {"content": f"Say {word} and no more, please.", "max_tokens": 60, "stream": number % 2 == 0}
        for number, word in enumerate(WORDS)
    ]
    wanted = asked(cases)
    with hash_server(hash_model(), EngineSettings(parallel=16)) as place:
        answers: dict[int, bool] = {}

        def one(number: int) -> None:
            answers[number] = ask(place.port, wanted[number]).equals(wanted[number])

        clients = [threading.Thread(target=one, args=(number,)) for number in range(16)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        assert answers == dict.fromkeys(range(16), True)
        assert all(ask(place.port, each).equals(each) for each in wanted)


def test_the_same_request_three_times_gets_the_same_reply_streamed_and_whole() -> None:
    with scripted(["a", "b", END]) as server:
        said: list[Said] = [server.chat("again " * 300, stream=streamed) for streamed in (False, True) * 3]
        assert {(each.status, each.text, each.finish) for each in said} == {(200, "ab", "stop")}
        assert {json.dumps(each.usage) for each in said} == {json.dumps(said[0].usage)}
