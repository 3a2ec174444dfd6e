"""Requests that end before they are whole, or ask to be told to go on where there is nothing to go on with."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable

import falcon
import pytest

from tensorfold.entrypoints.http.channel import Channel, JsonErrorTask
from tensorfold.entrypoints.http.health import HealthRoute
from tests.entrypoints.http.wire import Connection, OnSocket, checked_error, on_socket

EXPECTS = b"Host: localhost\r\nExpect: 100-continue\r\n"


def raw(server: OnSocket, data: bytes) -> Connection:
    client = server.connect()
    client.socket.sendall(data)
    return client


def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not fact():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.005)


@pytest.mark.parametrize("length", [b"", b"Content-Length: 0\r\n"])
def test_a_request_without_a_body_that_waits_to_be_told_to_go_on_is_answered(length: bytes) -> None:
    with on_socket() as server:
        client = raw(server, b"GET /health HTTP/1.1\r\n" + EXPECTS + length + b"\r\n")
        assert client.head()[0] == 200


def test_a_body_beyond_the_limit_is_refused_before_its_client_is_told_to_go_on() -> None:
    with on_socket() as server:
        length = b"Content-Length: 999999999\r\n\r\n"
        status, _, body = raw(server, b"POST /v1/completions HTTP/1.1\r\n" + EXPECTS + length).answer()
        assert status == 413
        assert checked_error(body.decode())["code"] == "request_too_large"


def test_a_body_that_waits_for_the_word_gets_it_and_is_answered() -> None:
    with on_socket() as server:
        client = raw(server, b"POST /v1/completions HTTP/1.1\r\n" + EXPECTS + b"Content-Length: 2\r\n\r\n")
        assert client.head()[0] == 100
        client.socket.sendall(b"{}")
        assert client.answer()[0] == 400


def test_a_refused_connection_ends_whatever_its_client_asked_for() -> None:
    with on_socket() as server:
        client = raw(server, b"GET / HTTP/1.0\r\nConnection: keep-alive\r\nno header\r\n\r\n")
        answer = client.socket.recv(65536).decode()
        assert answer.startswith("HTTP/1.0 400 ")
        assert [line for line in answer.split("\r\n") if line.startswith("Connection")] == ["Connection: close"]


def test_a_client_that_leaves_before_its_bad_request_is_answered_is_no_fault(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, begun = JsonErrorTask.execute, threading.Event()

    def late(task: JsonErrorTask) -> None:
        begun.set()
        until(lambda: not task.channel.connected, "the client's end")
        write(task)

    monkeypatch.setattr(JsonErrorTask, "execute", late)
    with on_socket() as server:
        client = raw(server, b"\r\nno request\r\n\r\n")
        assert begun.wait(30)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        until(lambda: server.server.connections == 0, "the end of the connection")
    assert [record.getMessage() for record in caplog.records] == []


def test_the_word_to_go_on_behind_another_answer_is_sent_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Channel.send

    def slowly(channel: Channel, data: bytes, do_close: bool = True) -> int:
        sent = int(send(channel, data, do_close=do_close))
        if b"100 Continue" in data and threading.current_thread().name != "http":
            # The loop is called while the bytes are sent and not yet crossed off.
            channel.server.pull_trigger()
            time.sleep(0.1)
        return sent

    held = threading.Event()
    answer = HealthRoute.on_get

    def held_back(route: HealthRoute, req: falcon.Request, resp: falcon.Response) -> None:
        assert held.wait(30)
        answer(route, req, resp)

    monkeypatch.setattr(Channel, "send", slowly)
    monkeypatch.setattr(HealthRoute, "on_get", held_back)
    with on_socket() as server:
        client = raw(server, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        client.socket.sendall(b"POST /v1/completions HTTP/1.1\r\n" + EXPECTS + b"Content-Length: 2\r\n\r\n")
        until(lambda: bool(server.server._web._channels()), "the connection")
        channel = next(iter(server.server._web._channels()))
        until(lambda: channel.request is not None and channel.request.headers_finished, "the second request's head")
        held.set()
        assert client.answer()[0] == 200
        assert client.head()[0] == 100
        client.socket.sendall(b"{}")
        assert client.answer()[0] == 400
    assert [record.getMessage() for record in caplog.records] == []
