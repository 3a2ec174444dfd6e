"""A server on loopback that answers each path as a test says: what a client of any chat server is tested against."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CHAT, MODELS, RECALL = "/v1/chat/completions", "/v1/models", "/v1/recall"


@dataclass
class Answer:
    """What a path answers: a status and bytes, after `before` was called."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None


class ChatSite:
    """Answers by path; every other path is 404. `asked` keeps path, headers and body of every request."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.asked: list[tuple[str, dict[str, str], Any]] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _answer(self, body: Any) -> None:
                named = {name.lower(): value for name, value in self.headers.items()}
                site.asked.append((self.path, named, body))
                answer = answers.get(self.path, Answer(b"{}", 404))
                answer.before()
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        self.port = int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """The site's address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        """Let go of the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def events(*objects: Any, done: bool = True) -> bytes:
    """A stream of events, as servers send it."""
    lines = [f"data: {json.dumps(one)}\n\n" for one in objects]
    return "".join([": a comment\n\n", *lines, "data: [DONE]\n\n" if done else ""]).encode()


def piece(text: str | None, **more: Any) -> dict[str, Any]:
    """An event that brings a piece of a reply's text."""
    return {"choices": [{"delta": {"content": text}, **more}]}
