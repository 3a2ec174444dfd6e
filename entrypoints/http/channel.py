"""One client's connection: early errors are told in our own form, and a reply's bytes may come from another thread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.task import ErrorTask, WSGITask

from tensorfold.entrypoints.http.errors import ApiError, bad_request, fault

_REASONS = {400: "Bad Request", 413: "Content Too Large", 431: "Request Header Fields Too Large"}
WIRE = "tensorfold.wire"


@dataclass(frozen=True, slots=True)
class Wire:
    """A way to the client beside the thread that serves the request.

    `write` sends bytes as a part of the answer whose head is already written; it raises when the client is gone, and
    may wait when `backlog()`, the bytes that wait to be sent, is large.
    """

    write: Callable[[bytes], None]
    backlog: Callable[[], int]


class Task(WSGITask):
    """A request that tells the application of its wire."""

    def get_environment(self) -> dict[str, Any]:
        """The WSGI environment."""
        environ: dict[str, Any] = super().get_environment()
        channel = self.channel
        environ[WIRE] = Wire(self.write, lambda: channel.total_outbufs_len)
        return environ


class JsonErrorTask(ErrorTask):
    """Answers what the parser refused, and faults outside the routes, as error objects."""

    def execute(self) -> None:
        """Write the answer and let the connection end."""
        request: Any = self.request
        error = _explained(getattr(getattr(request, "error", None), "code", 500), self.channel.adj)
        body = error.body()
        self.status = f"{error.status} {_REASONS.get(error.status, 'Internal Server Error')}"
        self.response_headers = [("Content-Type", "application/json"), *error.headers.items()]
        # Whatever its client asked for, the connection ends: one header says so, and none says that it stays.
        request.headers["CONNECTION"] = "close"
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Parser(HTTPRequestParser):
    """Reads a request; an address that the standard library cannot part is a bad request like any other."""

    # Named in the log when the client leaves; a head that cannot be read has none of its own.
    path = ""

    def received(self, data: bytes) -> int:
        """Read on; how many bytes were taken.

        A client may ask to be told to go on where nothing is to come, or nothing is to be read: it is answered instead.
        Telling it would have the request wait for a body, for good.
        """
        consumed = int(super().received(data))
        if self.completed:
            self.expect_continue = False
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Read the head. Raises ParsingError."""
        try:
            super().parse_header(header_plus)
        except ValueError:
            raise ParsingError("the address cannot be read") from None


class Channel(HTTPChannel):
    """A connection whose early errors are JSON and whose requests know their wire."""

    parser_class = Parser
    task_class = Task
    error_task_class = JsonErrorTask

    def _flush_some(self, do_close: bool = True) -> bool:
        """Send what waits, one thread at a time.

        The word to go on is sent by the thread of the request before it, when the loop may flush too: without the lock
        both would send the same bytes.
        """
        with self.outbuf_lock:
            # The loop may have closed the connection meanwhile; there is nobody left to send to.
            return self.socket is not None and bool(super()._flush_some(do_close))  # type: ignore[misc]


def _explained(code: int, bounds: Any) -> ApiError:
    """Our answer to what waitress refused by its own `bounds`."""
    if code == 413:
        return ApiError(413, _too_large("body is", bounds.max_request_body_size), code="request_too_large")
    if code == 431:
        return ApiError(431, _too_large("headers are", bounds.max_request_header_size))
    if code == 501:
        return bad_request("The Transfer-Encoding is not supported; send the body plain or chunked.")
    if code == 400:
        return bad_request("The request is not well-formed HTTP.")
    return fault()


def _too_large(what: str, limit: int) -> str:
    return f"The request's {what} larger than {limit // 1024} KiB, where this server stops reading."
