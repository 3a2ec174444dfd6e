"""A site on loopback that announces releases as the hosting site's API does, or misbehaves as a test says.

It counts every connection that is made to it, so that none can be claimed and seen.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

OWNER, NAME = "owner", "name"
API = f"/api/v3/repos/{OWNER}/{NAME}"
LATEST = f"{API}/releases/latest"

Behaviour = Callable[[socket.socket, threading.Event], None]
"""What is done with a connection once its request was read; the event says that the site closes."""


class ReleaseSite:
    """Answers by path: `answers` maps one, query included, to a behaviour. Everything else is 404.

    `greet` is said before anything is asked.
    """

    def __init__(self) -> None:
        self.answers: dict[str, Behaviour] = {}
        self.connections = 0
        self.requests: list[str] = []
        self.greet = b""
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def page(self) -> str:
        """The project's address on this site."""
        return f"http://127.0.0.1:{self.port}/{OWNER}/{NAME}"

    def announce(self, tag: Any, **more: Any) -> None:
        """Name a tag as that of the latest release."""
        self.answers[LATEST] = body(json.dumps({"tag_name": tag, **more}).encode())

    def publish(self, tag: str, changelog: bytes) -> None:
        """Hold a changelog at a tag."""
        self.answers[f"{API}/contents/CHANGELOG.md?ref={tag}"] = body(changelog)

    def close(self) -> None:
        """Let go of the port and of every connection."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError, ValueError, IndexError):
            connection.settimeout(30)
            connection.sendall(self.greet)
            head = b""
            while b"\r\n\r\n" not in head:
                piece = connection.recv(65536)
                if not piece:
                    return
                head += piece
            path = head.split(b" ", 2)[1].decode("latin-1")
            self.requests.append(path)
            self.answers.get(path, body(b"{}", "404 Not Found"))(connection, self._closing)


def body(data: bytes, status: str = "200 OK", *, headers: str = "", length: int | None = None) -> Behaviour:
    """An answer with a body; `length` states another length than the body has."""
    stated = len(data) if length is None else length

    def answer(connection: socket.socket, closing: threading.Event) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {stated}\r\nConnection: close\r\n{headers}\r\n"
        connection.sendall(head.encode("latin-1") + data)

    return answer


def raw(data: bytes) -> Behaviour:
    """Bytes as they are."""

    def answer(connection: socket.socket, closing: threading.Event) -> None:
        connection.sendall(data)

    return answer


def dripping(first: bytes, drop: bytes, every_s: float = 0.02) -> Behaviour:
    """Some bytes, then a few now and then for ever."""

    def answer(connection: socket.socket, closing: threading.Event) -> None:
        connection.sendall(first)
        while not closing.wait(every_s):
            connection.sendall(drop)

    return answer


def silent(connection: socket.socket, closing: threading.Event) -> None:
    """No answer, and no end."""
    closing.wait()


@contextmanager
def release_site(tag: str | None = None) -> Iterator[ReleaseSite]:
    """A running site, which announces `tag` when there is one; closed in the end."""
    site = ReleaseSite()
    if tag is not None:
        site.announce(tag)
    try:
        yield site
    finally:
        site.close()
