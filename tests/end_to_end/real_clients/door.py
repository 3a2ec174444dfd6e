"""A door that answers every request with one error, and counts who knocks how often.

Errors are the server's own answers, headers included, or the bare status; the first part of a path says which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tensorfold.entrypoints.http.errors import INVALID, NO_RETRY, SERVER, ApiError, fault, overloaded

WAIT_S = 1
BARE = (408, 409, 429, 500, 503)
ANSWERS: Mapping[str, ApiError] = {
    **{f"bare-{status}": ApiError(status, f"The door says {status}.", SERVER) for status in BARE},
    "fault": fault(),
    "conflict": ApiError(409, "The door says conflict.", INVALID, None, "recall_read_only", NO_RETRY),
    "full": overloaded("The door says full.", WAIT_S),
}


@dataclass
class Door:
    """Where it listens, and when each request came, by answer."""

    port: int = 0
    came: dict[str, list[float]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def base(self, answer: str) -> str:
        """The base URL for a client that is to get this answer."""
        return f"http://127.0.0.1:{self.port}/{answer}/v1"

    def take(self, answer: str) -> list[float]:
        """When the requests for an answer came, seconds; forgotten afterwards."""
        with self.lock:
            return self.came.pop(answer, [])


@contextmanager
def door() -> Iterator[Door]:
    """A door on a free loopback port."""
    seen = Door()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            """Count the request and refuse it."""
            answer = self.path.split("/")[1]
            with seen.lock:
                seen.came.setdefault(answer, []).append(time.monotonic())
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            error = ANSWERS[answer]
            body = error.body()
            self.send_response(error.status)
            headers = {"Content-Type": "application/json", "Content-Length": str(len(body)), **error.headers}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *given: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    seen.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
