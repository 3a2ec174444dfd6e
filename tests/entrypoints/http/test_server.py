"""The server on a real socket: connections, departures, crowds, stalled readers, and a well-formed end."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorfold.application.settings import HttpSettings
from tensorfold.entrypoints.http import listening
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.listening import ListenError, open_sockets
from tensorfold.entrypoints.http.server import HttpServer
from tensorfold.entrypoints.http.web import adjustments, socket_options
from tests.entrypoints.http.fakes import FakeChat, FakeReply, silent
from tests.entrypoints.http.wire import (
    MESSAGES,
    PATIENT,
    QUICK,
    VERSION,
    Connection,
    OnSocket,
    checked_error,
    chunks_of,
    on_socket,
)


def until(fact: Callable[[], bool], what: str) -> None:
    """Wait for a fact; the bound is far above what a loaded machine needs."""
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.005)


def first_reply(server: OnSocket) -> FakeReply:
    until(lambda: bool(server.chat.replies), "a reply")
    return server.chat.replies[0]


def test_a_stream_comes_in_chunks_of_whole_events_and_ends_its_connection() -> None:
    with on_socket() as server:
        client = server.connect()
        client.chat(stream=True)
        status, headers = client.head()
        assert status == 200
        assert headers["content-type"] == "text/event-stream; charset=utf-8"
        assert headers["transfer-encoding"] == "chunked"
        assert "server" not in headers
        events = client.events()
        assert len(chunks_of("\n\n".join(events) + "\n\n")) == 4
        assert client.at_end()


def test_the_first_event_and_each_delta_come_before_the_next_exists() -> None:
    with on_socket(FakeChat(silent)) as server:
        client = server.connect()
        client.chat(stream=True)
        client.head()
        assert '"role":"assistant"' in client.event()
        reply = first_reply(server)
        for text in ("one", "two", "three"):
            reply.say(text)
            assert f'"content":"{text}"' in client.event()
        reply.end()
        assert client.events()[-1] == "data: [DONE]"


def test_a_connection_serves_one_request_after_another() -> None:
    with on_socket() as server:
        client = server.connect()
        for _ in range(3):
            client.chat()
            status, headers, body = client.answer()
            assert (status, headers["content-type"]) == (200, "application/json")
            assert json.loads(body)["choices"][0]["message"]["content"] == "Hello world"
        client.send("POST", "/v1/chat/completions", b"{bad")
        assert client.answer()[0] == 400
        client.send("HEAD", "/v1/models")
        status, headers = client.head()
        assert (status, headers["content-length"] != "0") == (200, True)
        client.send("OPTIONS", "*")
        assert client.answer()[0] == 200
        client.send("GET", "/health")
        assert client.answer()[0] == 200


def test_a_client_of_http_1_0_gets_events_without_chunks_and_the_end() -> None:
    with on_socket() as server:
        client = server.connect()
        raw = json.dumps({"messages": MESSAGES, "stream": True}).encode()
        head = f"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: {len(raw)}\r\n\r\n"
        client.socket.sendall(head.encode() + raw)
        status, headers = client.head()
        assert (status, "transfer-encoding" in headers) == (200, False)
        text = b""
        while part := client.socket.recv(65536):
            text += part
        assert len(chunks_of(client.rest() + text.decode())) == 4


def test_a_chunked_request_body_is_read() -> None:
    with on_socket() as server:
        client = server.connect()
        client.send("POST", "/v1/chat/completions", None, {"Transfer-Encoding": "chunked"})
        raw = json.dumps({"messages": MESSAGES}).encode()
        for part in (raw[:7], raw[7:]):
            client.socket.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        client.socket.sendall(b"0\r\n\r\n")
        assert client.answer()[0] == 200


def test_a_client_that_waits_for_a_go_ahead_gets_one() -> None:
    with on_socket() as server:
        client = server.connect()
        raw = json.dumps({"messages": MESSAGES}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(raw)}\r\n"
        client.socket.sendall(head.encode() + b"Expect: 100-continue\r\n\r\n")
        assert client.head()[0] == 100
        client.socket.sendall(raw)
        assert client.answer()[0] == 200


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /health HTTP/1.1\r\nbad header\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: br\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 300_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_not_http_gets_an_error_object_and_the_end(raw: bytes, status: int) -> None:
    with on_socket() as server:
        client = server.connect()
        client.socket.sendall(raw)
        found, headers, body = client.answer()
        assert found == status
        assert headers["content-type"] == "application/json"
        assert checked_error(body.decode())["type"] == "invalid_request_error"
        assert server.connect().socket
        assert not server.told.faults


def leave_and_wait(server: OnSocket, client: Connection, reply: FakeReply) -> None:
    client.close()
    until(reply.cancelled.is_set, "the cancel")
    until(lambda: server.server.gate.inside == 0, "the place given back")
    assert server.server.gate.disconnections == 1
    until(lambda: len(server.told.access) == 1, "the log line")
    assert "end=left" in server.told.access[0].line()
    fresh = server.connect()
    fresh.send("GET", "/health")
    assert json.loads(fresh.answer()[2])["client_disconnections_total"] == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_any_text_frees_its_reply(stream: bool) -> None:
    with on_socket(FakeChat(silent)) as server:
        client = server.connect()
        client.chat(stream=stream)
        reply = first_reply(server)
        until(reply.pulled.is_set, "the reader")
        leave_and_wait(server, client, reply)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_in_the_middle_frees_its_reply(stream: bool) -> None:
    with on_socket(FakeChat(silent)) as server:
        client = server.connect()
        client.chat(stream=stream)
        reply = first_reply(server)
        for _ in range(3):
            reply.say("x")
        if stream:
            client.head()
            assert [bool(client.event()) for _ in range(4)] == [True] * 4
        leave_and_wait(server, client, reply)


def test_a_connection_reset_frees_its_reply_like_a_close() -> None:
    with on_socket(FakeChat(silent)) as server:
        client = server.connect()
        client.chat(stream=True)
        reply = first_reply(server)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        leave_and_wait(server, client, reply)


@pytest.mark.slow
def test_many_clients_leaving_leave_nothing_behind() -> None:
    with on_socket(FakeChat(silent), limits=HttpLimits(threads=20, spare_threads=4, poll_s=0.01)) as server:
        before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0
        for _ in range(4):
            clients = [server.connect() for _ in range(12)]
            for index, client in enumerate(clients):
                client.chat(stream=index % 2 == 0)
            until(lambda: server.server.gate.inside == 12, "twelve replies")
            for client in clients:
                client.close()
            until(lambda: server.server.gate.inside == 0, "all places given back")
        assert server.server.gate.disconnections == 48
        assert all(reply.cancelled.is_set() for reply in server.chat.replies)
        if before:
            until(lambda: len(os.listdir("/proc/self/fd")) <= before, "the descriptors given back")


def test_a_full_house_is_refused_at_once_while_health_and_models_still_answer() -> None:
    with on_socket(FakeChat(silent)) as server:
        clients = [server.connect() for _ in range(PATIENT.replies)]
        for client in clients:
            client.chat(stream=True)
        until(lambda: server.server.gate.inside == PATIENT.replies, "a full house")
        late = server.connect()
        late.chat(stream=True)
        status, headers, body = late.answer()
        assert status == 503
        assert int(headers["retry-after"]) > 0
        assert checked_error(body.decode())["code"] == "overloaded"
        for path in ("/health", "/v1/models"):
            late.send("GET", path)
            assert late.answer()[0] == 200
        for reply in server.chat.replies:
            reply.end()
        for client in clients:
            client.head()
            assert client.events()[-1] == "data: [DONE]"
        until(lambda: server.server.gate.inside == 0, "an empty house")
        late.chat(stream=True)
        until(lambda: server.server.gate.inside == 1, "a place for the late one")


def open_files() -> set[str]:
    """What the process has open, where the system lists it."""
    if not Path("/proc/self/fd").is_dir():
        return set()
    return {os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd") if is_open(number)}


def is_open(number: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{number}")


def test_a_long_prompt_never_touches_the_disk() -> None:
    with on_socket(FakeChat(silent, context=10**8)) as server:
        before = open_files()
        client = server.connect()
        client.send("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 3_000_000}]})
        reply = first_reply(server)
        assert not [name for name in open_files() - before if name.startswith("/")]
        reply.say("y" * 3_000_000)
        reply.end()
        status, _, body = client.answer()
        assert status == 200
        assert len(json.loads(body)["choices"][0]["message"]["content"]) == 3_000_000


@pytest.mark.slow
def test_a_client_that_never_reads_is_dropped_and_others_keep_their_pace() -> None:
    limits = HttpLimits(threads=12, spare_threads=4, poll_s=0.01, stall_s=1.0)
    with on_socket(FakeChat(silent), limits=limits) as server:
        stuck = server.connect(receive_buffer=4096)
        stuck.chat(stream=True)
        reply = first_reply(server)
        other = server.connect()
        other.chat(stream=True)
        until(lambda: len(server.chat.replies) == 2, "the other reply")
        other.head()
        other.event()
        block = "z" * 60_000
        for round_number in range(200):
            reply.say(block)
            server.chat.replies[1].say(f"r{round_number}")
            assert f'"r{round_number}"' in other.event()
        until(reply.cancelled.is_set, "the stuck reply dropped")
        assert not server.chat.replies[1].cancelled.is_set()
        server.chat.replies[1].end()
        assert other.events()[-1] == "data: [DONE]"
        until(lambda: server.server.gate.inside == 0, "no thread held")
        assert server.server.gate.disconnections == 1


@pytest.mark.slow
def test_a_slow_reader_gets_every_byte_in_order() -> None:
    with on_socket(FakeChat(silent)) as server:
        slow = server.connect(receive_buffer=4096)
        slow.chat(stream=True)
        reply = first_reply(server)
        texts = [f"{number}:" + "z" * 20_000 for number in range(400)]
        for text in texts:
            reply.say(text)
        reply.end()
        slow.head()
        chunks = chunks_of("\n\n".join(slow.events()) + "\n\n")
        assert [chunk["choices"][0]["delta"].get("content") for chunk in chunks[1:-1]] == texts
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"


def test_nothing_follows_the_end_of_a_stream_that_is_cut_while_tokens_still_land() -> None:
    with on_socket(FakeChat(silent)) as server:
        clients = [server.connect() for _ in range(4)]
        for client in clients:
            client.chat(stream=True)
        until(lambda: len(server.chat.replies) == 4, "four replies")
        stop = threading.Event()

        def talk() -> None:
            while not stop.wait(0.0005):
                for reply in server.chat.replies:
                    reply.say("x")

        talker = threading.Thread(target=talk)
        talker.start()
        try:
            for client in clients:
                client.head()
                assert [bool(client.event()) for _ in range(20)] == [True] * 20
            server.server.hurry()
            for client in clients:
                events = client.events()
                assert events[-1] == "data: [DONE]"
                assert "error" in json.loads(events[-2].removeprefix("data: "))
                assert client.at_end()
        finally:
            stop.set()
            talker.join()


@pytest.mark.slow
def test_a_finished_answer_that_nobody_reads_is_dropped_too() -> None:
    limits = HttpLimits(threads=12, spare_threads=4, poll_s=0.01, stall_s=1.0)
    with on_socket(FakeChat(silent), limits=limits) as server:
        stuck = server.connect(receive_buffer=4096)
        stuck.chat()
        reply = first_reply(server)
        reply.say("z" * 8_000_000)
        reply.end()
        until(lambda: server.server.gate.inside == 0, "the reply written")
        until(lambda: server.server.connections == 0, "the connection dropped")
        with pytest.raises(ConnectionError):
            stuck.answer()


def test_before_the_model_is_ready_health_says_so_and_then_serves() -> None:
    with on_socket(ready=False) as server:
        client = server.connect()
        client.send("GET", "/health")
        status, _, body = client.answer()
        assert (status, json.loads(body)) == (503, {"status": "loading", "version": VERSION})
        client.chat()
        assert client.answer()[0] == 503
        server.server.ready(server.chat, server.health, "fake")
        client.chat()
        assert client.answer()[0] == 200


def test_a_drain_refuses_new_work_and_lets_running_replies_finish() -> None:
    with on_socket(FakeChat(silent)) as server:
        running, idle = server.connect(), server.connect()
        running.chat(stream=True)
        reply = first_reply(server)
        idle.send("GET", "/health")
        assert idle.answer()[0] == 200
        server.server.drain(600.0)
        idle.chat()
        status, headers, body = idle.answer()
        assert (status, "retry-after" in headers) == (503, True)
        assert checked_error(body.decode())["code"] == "overloaded"
        idle.send("GET", "/health")
        status, _, body = idle.answer()
        assert (status, json.loads(body)["status"]) == (503, "draining")
        reply.say("last words")
        reply.end()
        running.head()
        chunks = chunks_of("\n\n".join(running.events()) + "\n\n")
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        stopper = threading.Thread(target=server.server.stop)
        stopper.start()
        stopper.join(30)
        assert not stopper.is_alive()


@pytest.mark.parametrize("busy", [False, True])
def test_stopping_ends_every_open_reply_in_good_form(busy: bool) -> None:
    with on_socket(FakeChat(silent)) as server:
        streams = [server.connect() for _ in range(5)]
        whole = server.connect()
        for client in streams:
            client.chat(stream=True)
        whole.chat()
        until(lambda: len(server.chat.replies) == 6, "six replies")
        for reply in server.chat.replies:
            for _ in range(300 if busy else 0):
                reply.say("x")
        server.server.hurry()
        server.server.stop()
        for client in streams:
            client.head()
            events = client.events()
            assert events[-1] == "data: [DONE]"
            error = checked_error(events[-2].removeprefix("data: "))
            assert (error["type"], error["code"]) == ("server_error", "overloaded")
        status, _, body = whole.answer()
        assert status == 503
        assert checked_error(body.decode())["code"] == "overloaded"
        assert all(reply.cancelled.is_set() for reply in server.chat.replies)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", server.server.port), timeout=5)


@pytest.mark.slow
def test_stopping_does_not_wait_for_a_client_that_never_reads() -> None:
    with on_socket(FakeChat(silent)) as server:
        stuck = server.connect(receive_buffer=4096)
        stuck.chat(stream=True)
        reply = first_reply(server)
        for _ in range(200):
            reply.say("z" * 60_000)
        until(reply.pulled.is_set, "the reader")
        server.server.stop(0.0)
        assert reply.cancelled.is_set()
        assert server.server.gate.inside == 0


def test_a_connection_that_waits_for_a_thread_is_no_line_of_the_servers_output(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with on_socket() as server:
        dispatcher = server.server._web._server.task_dispatcher
        dispatcher.queue_logger.warning("Task queue depth is 1")
    assert caplog.records == []


def test_an_unused_server_stops_without_having_started() -> None:
    server = HttpServer(HttpSettings(port=0), QUICK, version=VERSION)
    server.stop(0.0)
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_a_port_in_use_is_refused_with_its_address_and_the_first_server_keeps_it() -> None:
    with on_socket() as server:
        port = server.server.port
        for host in ("127.0.0.1", "0.0.0.0", "localhost"):
            with pytest.raises(ListenError) as refused:
                HttpServer(HttpSettings(host=host, port=port), QUICK, version=VERSION)
            assert str(port) in refused.value.message
            assert "in use" in refused.value.message
        client = server.connect()
        client.chat()
        assert client.answer()[0] == 200


@pytest.mark.parametrize(
    ("host", "port", "words"),
    [
        ("192.0.2.1", 0, "192.0.2.1 is not an address of this machine"),
        ("no-such-host.invalid", 0, "cannot be resolved"),
        ("x" * 300, 0, "cannot be resolved"),
        ("127.0.0.1", 65536, "65536 is not a port"),
        ("127.0.0.1", -1, "-1 is not a port"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_explained(host: str, port: int, words: str) -> None:
    with pytest.raises(ListenError) as refused:
        open_sockets(host, port)
    assert words in refused.value.message
    assert "\n" not in refused.value.message


def test_another_machine_is_never_asked_whether_its_port_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def answers(*place: object) -> bool:
        asked.append(place)
        return True

    monkeypatch.setattr(listening, "_answers", answers)
    with pytest.raises(ListenError, match=r"192\.0\.2\.1 is not an address of this machine"):
        open_sockets("192.0.2.1", 8080)
    assert asked == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "", "*"])
def test_an_open_port_of_zero_is_one_port_for_all_addresses(host: str) -> None:
    sockets = open_sockets(host, 0)
    try:
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
        if host in ("127.0.0.1", "localhost") and len(sockets) > 1:
            assert sockets[1].getsockname()[0] == "::1"
    finally:
        for sock in sockets:
            sock.close()


def test_a_loopback_twin_that_is_taken_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = listening._bind

    def refuse_v6(family: int, address: str, port: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise ListenError("taken")
        return bind(family, address, port)

    monkeypatch.setattr(listening, "_bind", refuse_v6)
    (only,) = open_sockets("127.0.0.1", 0)
    only.close()


def test_clients_that_resolve_localhost_to_ipv6_are_served_where_there_is_ipv6() -> None:
    with on_socket() as server:
        try:
            sixth = socket.create_connection(("::1", server.server.port), timeout=5)
        except OSError:
            assert not any(":" in str(info[4][0]) for info in socket.getaddrinfo("localhost", 0)) or not _has_ipv6()
            return
        sixth.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert sixth.recv(100).startswith(b"HTTP/1.1 200")
        sixth.close()


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_the_address_shown_is_one_a_client_can_use() -> None:
    shown_of = {"127.0.0.1": "127.0.0.1", "0.0.0.0": "127.0.0.1", "localhost": "127.0.0.1"}
    for host, shown in (shown_of | ({"::": "[::1]", "::1": "[::1]"} if _has_ipv6() else {})).items():
        server = HttpServer(HttpSettings(host=host, port=0), QUICK, version=VERSION)
        try:
            assert server.url == f"http://{shown}:{server.port}/v1"
        finally:
            server.stop(0.0)


def test_nothing_of_a_request_or_a_reply_spills_to_disk_and_bodies_have_a_bound_beyond_ours() -> None:
    limits = HttpLimits()
    settings = adjustments(limits)
    assert settings["inbuf_overflow"] >= settings["max_request_body_size"] > limits.body_bytes
    assert settings["outbuf_overflow"] > settings["outbuf_high_watermark"]
    assert settings["channel_request_lookahead"] == 1
    assert "send_bytes" not in settings
    options = socket_options(120.0)
    assert (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1) in options
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        assert (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 120_000) in options
