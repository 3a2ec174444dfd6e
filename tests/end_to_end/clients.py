"""Clients over raw sockets that read replies strictly, and that can leave as politely or rudely as a test wants."""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.end_to_end.hash_server import PATIENCE_S, Asked

Manner = Literal["close", "fin", "reset"]
_NO_LINGER = struct.pack("ii", 1, 0)


@dataclass
class Answer:
    """A whole answer. `text`, `ids` and `finish` are those of a reply; `error` is the one error object it may hold."""

    status: int
    headers: Mapping[str, str]
    text: str = ""
    ids: tuple[int, ...] = ()
    finish: str | None = None
    error: dict[str, Any] | None = None
    faults: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether a reply came to its end, in good form."""
        return self.status == 200 and self.error is None and self.finish is not None and not self.faults

    def equals(self, wanted: Asked) -> bool:
        """Whether this is the wanted reply: its ids, its text and why it ended."""
        return self.whole and (self.ids, self.text, self.finish) == (
            wanted.reply.tokens,
            wanted.text,
            wanted.reply.finish,
        )

    @property
    def failed_well(self) -> bool:
        """Whether this is one well-formed error: an error answer, or one error event and the end of the stream."""
        if self.error is None or self.faults or self.finish is not None:
            return False
        return sorted(self.error) == ["code", "message", "param", "type"] and self.error["type"] == "server_error"


class Client:
    """One connection with one request."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self._data = b""

    def send(self, raw: bytes) -> None:
        """Bytes as they are."""
        self.socket.sendall(raw)

    def ask(self, asked: Asked) -> None:
        """A whole request."""
        self.send(request_bytes(asked))

    def heard(self) -> bool:
        """Whether a byte of the answer, or its end, has come by now."""
        return bool(self._data) or bool(select.select([self.socket], [], [], 0)[0])

    def receive_events(self, count: int) -> int:
        """Wait for `count` events of a stream, or its end; how many came."""
        while self._data.count(b"\n\n") < count and (part := self.socket.recv(65536)):
            self._data += part
        return self._data.count(b"\n\n")

    def answer(self) -> Answer:
        """Everything up to the end of the connection, checked for its form; then close."""
        with self.socket:
            while part := self.socket.recv(65536):
                self._data += part
        return read_answer(self._data)

    def leave(self, manner: Manner) -> None:
        """Go. `fin` says goodbye and reads on until the server has hung up, `reset` is a cable pulled out."""
        with self.socket:
            if manner == "reset":
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            elif manner == "fin":
                try:
                    self.socket.shutdown(socket.SHUT_WR)
                    while self.socket.recv(65536):
                        pass
                except OSError:
                    return


def request_bytes(asked: Asked) -> bytes:
    """A request as it goes over the wire."""
    return post_bytes(asked.path, json.dumps(asked.body).encode())


def post_bytes(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A POST of any bytes."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def get(port: int, path: str) -> tuple[int, dict[str, Any]]:
    """Status and JSON of a GET."""
    client = Client(port)
    client.send(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    with client.socket:
        while part := client.socket.recv(65536):
            client._data += part
    head, _, body = client._data.partition(b"\r\n\r\n")
    return int(head.split(b" ", 2)[1]), json.loads(body)


def ask(port: int, asked: Asked) -> Answer:
    """Ask and read the answer."""
    client = Client(port)
    client.ask(asked)
    return client.answer()


def post(port: int, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
    """Post any bytes and read the answer."""
    client = Client(port)
    client.send(post_bytes(path, body, headers))
    return client.answer()


def read_answer(data: bytes) -> Answer:
    """An answer's bytes, read strictly: whatever is out of form is a fault."""
    head, mark, rest = data.partition(b"\r\n\r\n")
    if not mark:
        return Answer(0, {}, faults=[f"no whole head in {data[:80]!r}"])
    status, headers = _read_head(head)
    answer = Answer(status, headers)
    try:
        if headers.get("transfer-encoding") == "chunked":
            _read_events(answer, _dechunked(rest))
        else:
            _read_whole(answer, rest, int(headers["content-length"]))
    except (ValueError, KeyError, IndexError, TypeError) as wrong:
        answer.faults.append(f"{wrong!r} in {rest[-200:]!r}")
    return answer


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    return int(first.split(" ", 2)[1]), {name.lower(): value for name, value in pairs}


def _dechunked(data: bytes) -> bytes:
    parts: list[bytes] = []
    while True:
        size, mark, data = data.partition(b"\r\n")
        if not mark:
            raise ValueError("the stream ends inside a chunk")
        length = int(size, 16)
        if length == 0:
            if data != b"\r\n":
                raise ValueError("bytes behind the last chunk")
            return b"".join(parts)
        if data[length : length + 2] != b"\r\n":
            raise ValueError("a chunk is not whole")
        parts.append(data[:length])
        data = data[length + 2 :]


def _read_events(answer: Answer, body: bytes) -> None:
    events = body.decode().split("\n\n")
    if events.pop() != "" or not events or events[-1] != "data: [DONE]" or events.count("data: [DONE]") != 1:
        raise ValueError("the events do not end in one [DONE]")
    for event in events[:-1]:
        if event.startswith(":"):
            continue
        if answer.error is not None:
            raise ValueError("an event behind the error")
        value = json.loads(event.removeprefix("data: "))
        if "error" in value:
            answer.error = value["error"]
        else:
            _read_choices(answer, value)


def _read_whole(answer: Answer, body: bytes, length: int) -> None:
    if len(body) != length:
        raise ValueError(f"{len(body)} bytes of {length}")
    value = json.loads(body)
    if "error" in value:
        answer.error = value["error"]
    else:
        _read_choices(answer, value)
    if (answer.error is None) != (answer.status == 200):
        raise ValueError("status and body do not agree")


def _read_choices(answer: Answer, value: dict[str, Any]) -> None:
    for choice in value["choices"]:
        part = choice.get("delta") or choice.get("message") or {"content": choice.get("text", "")}
        answer.text += part.get("content") or ""
        if choice["finish_reason"] is not None:
            if answer.finish is not None:
                raise ValueError("two finish reasons")
            answer.finish = choice["finish_reason"]
    if "tensorfold" in value:
        answer.ids = tuple(value["tensorfold"]["token_ids"])
