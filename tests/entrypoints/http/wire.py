"""A server over fakes, in process or on a loopback socket, and a client that speaks bytes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import falcon.testing

from tensorfold.application.settings import HttpSettings
from tensorfold.entrypoints.http.access_log import AccessRecord
from tensorfold.entrypoints.http.app import Exposure, create_app
from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.keys import KeyRing
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.server import HttpServer
from tensorfold.entrypoints.http.services import MeasureService, RecallService, Services
from tests.entrypoints.http.fakes import FakeChat, FakeHealth

VERSION = "1.2.3"
QUICK = HttpLimits(threads=12, spare_threads=4, poll_s=0.01, keepalive_s=0.02, stall_s=1.0, descriptors=256)
PATIENT = HttpLimits(threads=12, spare_threads=4, poll_s=0.01, keepalive_s=60.0, stall_s=60.0, descriptors=256)
MESSAGES = [{"role": "user", "content": "hi"}]


@dataclass
class Told:
    """What a server told its logs."""

    access: list[AccessRecord] = field(default_factory=list)
    faults: list[tuple[str, BaseException]] = field(default_factory=list)

    def fault(self, where: str, broken: BaseException) -> None:
        self.faults.append((where, broken))


@dataclass
class InProcess:
    """The application without a socket."""

    client: falcon.testing.TestClient
    chat: FakeChat
    health: FakeHealth
    gate: Gate
    told: Told

    def post(self, body: Any, path: str = "/v1/chat/completions", **kwargs: Any) -> falcon.testing.Result:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.simulate_post(path, body=raw, **kwargs)

    def ask(self, path: str = "/v1/chat/completions", **fields: Any) -> falcon.testing.Result:
        """A chat request with these fields beside its messages."""
        return self.post({"messages": MESSAGES} | fields, path)

    def refused(self, path: str = "/v1/chat/completions", **fields: Any) -> dict[str, Any]:
        """The error of a request that must be refused with 400."""
        result = self.ask(path, **fields)
        assert result.status_code == 400, result.text
        assert not self.chat.orders
        return error_of(result)


def in_process(
    chat: FakeChat | None = None,
    *,
    keys: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    origins: tuple[str, ...] = (),
    limits: HttpLimits = PATIENT,
    ready: bool = True,
    recall: RecallService | None = None,
    expects_recall: bool = False,
    ring: KeyRing | None = None,
    measures: MeasureService | None = None,
    metrics_open: bool = False,
    taken: Callable[[Mapping[str, Any]], None] = lambda body: None,
) -> InProcess:
    """An application over fakes. `keys` maps labels to keys, `ring` stands in their place."""
    chat, health, told = chat or FakeChat(), FakeHealth(), Told()
    services, gate = Services(VERSION, recall=expects_recall), Gate(limits.replies)
    if recall is not None:
        services.install_recall(recall)
    if ready:
        services.install(chat, health, "fake", measures)
    exposure = Exposure(host, ring or KeyRing((keys or {}).items()), origins, metrics_open)
    app = create_app(
        services,
        gate,
        exposure,
        limits,
        version=VERSION,
        log=told.access.append,
        log_fault=told.fault,
        taken=taken,
    )
    client = falcon.testing.TestClient(app, headers={"Host": "localhost"})
    return InProcess(client, chat, health, gate, told)


@dataclass
class OnSocket:
    """The application behind its real server."""

    server: HttpServer
    chat: FakeChat
    health: FakeHealth
    told: Told

    def connect(self, *, receive_buffer: int | None = None) -> Connection:
        """A new connection."""
        return Connection(self.server.port, receive_buffer)


@contextmanager
def on_socket(
    chat: FakeChat | None = None,
    *,
    limits: HttpLimits = PATIENT,
    keys: tuple[tuple[str, str], ...] = (),
    ready: bool = True,
    recall: RecallService | None = None,
) -> Iterator[OnSocket]:
    """A running server on a free loopback port; stopped at once in the end."""
    chat, health, told = chat or FakeChat(), FakeHealth(), Told()
    settings = HttpSettings(host="127.0.0.1", port=0, keys=keys)
    server = HttpServer(
        settings, limits, version=VERSION, recall=recall is not None, log=told.access.append, log_fault=told.fault
    )
    server.start()
    if recall is not None:
        server.keep(recall)
    if ready:
        server.ready(chat, health, "fake")
    try:
        yield OnSocket(server, chat, health, told)
    finally:
        server.stop(0.0)


class Connection:
    """One socket. Reads what the server sends as head, chunks and events."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", port))
        self._buffer = b""
        self._events: list[bytes] = []

    def send(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if body is not None:
            lines.append(f"Content-Length: {len(raw)}")
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode() + raw)

    def chat(self, **fields: Any) -> None:
        """Send a chat request."""
        self.send("POST", "/v1/chat/completions", {"messages": MESSAGES} | fields)

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer."""
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if line)
        return int(lines[0].split()[1]), {name.lower(): value for name, value in headers.items()}

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """A whole answer with a Content-Length."""
        status, headers = self.head()
        return status, headers, self._exactly(int(headers.get("content-length", "0")))

    def chunk(self) -> bytes:
        """One chunk of a chunked body; empty at its end."""
        size = int(self._until(b"\r\n"), 16)
        return self._exactly(size + 2)[:-2]

    def event(self) -> str:
        """The next event of a stream, comments included; empty at its end. A chunk holds whole events."""
        if not self._events:
            chunk = self.chunk()
            assert not chunk or chunk.endswith(b"\n\n")
            self._events = chunk.split(b"\n\n")[:-1]
        return self._events.pop(0).decode() if self._events else ""

    def events(self) -> list[str]:
        """All events of a stream up to its end."""
        found = []
        while event := self.event():
            found.append(event)
        return found

    def rest(self) -> str:
        """What was received and not yet read."""
        rest, self._buffer = self._buffer.decode(), b""
        return rest

    def at_end(self) -> bool:
        """Whether the server closes the connection without another byte."""
        return not self._buffer and self.socket.recv(1) == b""

    def close(self) -> None:
        self.socket.close()

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._receive()
        part, self._buffer = self._buffer.split(mark, 1)
        return part

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive()
        part, self._buffer = self._buffer[:size], self._buffer[size:]
        return part

    def _receive(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError(f"the server closed the connection after {self._buffer!r}")
        self._buffer += data


def error_of(result: falcon.testing.Result) -> dict[str, Any]:
    """The error object of an answer, which must have its four keys and no word of the machinery."""
    return checked_error(result.text)


def checked_error(text: str) -> dict[str, Any]:
    """The error object in a JSON text, checked for its shape."""
    error: dict[str, Any] = json.loads(text)["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert isinstance(error["message"], str)
    assert error["message"]
    for word in ("Traceback", "pydantic", "Error(", "validation", "value_error", "object at 0x"):
        assert word not in text
    return error


def chunks_of(text: str) -> list[dict[str, Any]]:
    """The JSON chunks of a stream's text, which must end in [DONE] once."""
    events = [event for event in text.split("\n\n") if event]
    assert events[-1] == "data: [DONE]"
    data = [event for event in events[:-1] if not event.startswith(":")]
    return [json.loads(event.removeprefix("data: ")) for event in data]
