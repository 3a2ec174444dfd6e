"""An OpenAI-compatible server at an address: models, the record's state where there is one, and streamed replies.

A connection for each request, as clients make them; no redirect is followed, so that a key goes nowhere else. Neither
the key nor what a server wrote is ever part of a sentence for the user, but for its HTTP status.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from tensorfold.adapters.servers.events import EventFaultError, ReplyEvents
from tensorfold.application.ports.benchmarks import ServerFaultError, ServerReply, ServerRequest
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.machine import Clock

MOST_ANSWER = 4 << 20
MOST_LINE = 1 << 20
MOST_STREAM = 256 << 20
MOST_MODELS = 4096
_WAIT_S = 600.0
_QUICK_S = 30.0


class HttpChatServer:
    """The ChatServer at `url`, such as http://127.0.0.1:8080/v1; without a path, /v1 is taken."""

    def __init__(self, url: str, key: str | None, clock: Clock) -> None:
        """Raises RefusedError for a text that is no such address."""
        self._parts = _address(url)
        self._base = self._parts.path.rstrip("/") or "/v1"
        self._clock = clock
        self._headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"

    @property
    def name(self) -> str:
        """The server in sentences: host and port, nothing of the rest."""
        return f"the server at {self._parts.hostname}:{self._port}"

    @property
    def _port(self) -> int:
        return self._parts.port or (443 if self._parts.scheme == "https" else 80)

    def models(self) -> Sequence[str]:
        """Ids of its models. Raises ServerFaultError."""
        answer = self._get("/models")
        data = answer.get("data") if isinstance(answer, dict) else None
        ids = [one.get("id") for one in data[:MOST_MODELS] if isinstance(one, dict)] if isinstance(data, list) else []
        named = [one for one in ids if isinstance(one, str) and one.isprintable() and 0 < len(one) <= 256]
        if not named:
            raise ServerFaultError(f"{self.name} names no model; name it as MODEL.")
        return named

    def record_state(self) -> str | None:
        """What GET /recall says."""
        try:
            answer = self._get("/recall")
        except ServerFaultError:
            return None
        state = answer.get("state") if isinstance(answer, dict) else None
        if not isinstance(state, str) or not state.isprintable() or not 0 < len(state) <= 32:
            return None
        return state

    def reply(self, request: ServerRequest) -> ServerReply:
        """One streamed chat. Raises ServerFaultError."""
        with self._asked("POST", "/chat/completions", _WAIT_S, _body(request)) as (response, began):
            events = ReplyEvents()
            first = last = None
            read = 0
            while not events.finished:
                line = response.readline(MOST_LINE + 1)
                read += len(line)
                if not line:
                    break
                if len(line) > MOST_LINE or read > MOST_STREAM:
                    raise ServerFaultError(
                        f"{self.name} sent a longer reply than the {MOST_STREAM} bytes that are read."
                    )
                try:
                    has_text = events.take(line.strip())
                except EventFaultError as fault:
                    raise ServerFaultError(f"{self.name} {fault.message}.") from None
                if has_text:
                    last = self._clock.monotonic() - began
                    first = last if first is None else first
            seconds = self._clock.monotonic() - began
        if not events.finished and not events.pieces:
            raise ServerFaultError(f"{self.name} sent no streamed reply.")
        return ServerReply(events.text, first, last or seconds, seconds, events.pieces, events.tokens)

    def _get(self, path: str) -> Any:
        with self._asked("GET", path, _QUICK_S, None) as (response, _):
            data = response.read(MOST_ANSWER + 1)
        if len(data) > MOST_ANSWER:
            raise ServerFaultError(f"{self.name} answered {path} with more than {MOST_ANSWER} bytes.")
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise ServerFaultError(f"{self.name} answered {path} with no JSON.") from None

    @contextmanager
    def _asked(
        self, method: str, path: str, timeout: float, body: bytes | None
    ) -> Iterator[tuple[HTTPResponse, float]]:
        """A response of status 200, and when its request began to be sent. Raises ServerFaultError."""
        connection = self._connection(timeout)
        try:
            connection.connect()
            began = self._clock.monotonic()
            connection.request(method, self._base + path, body, self._headers)
            response = connection.getresponse()
            if response.status != 200:
                raise ServerFaultError(
                    f"{self.name} answered {path} with status {response.status}{_hint(response.status)}.",
                    response.status,
                )
            yield response, began
        except TimeoutError:
            raise ServerFaultError(f"{self.name} said nothing for {timeout:.0f} seconds.") from None
        except ssl.SSLError:
            raise ServerFaultError(f"{self.name} does not speak TLS that this machine trusts.") from None
        except ConnectionRefusedError:
            raise ServerFaultError(f"{self.name} takes no connections; start it, or name another --url.") from None
        except (OSError, HTTPException, ValueError) as fault:
            number = f" (error {fault.errno})" if isinstance(fault, OSError) and fault.errno is not None else ""
            raise ServerFaultError(f"{self.name} cannot be reached, or broke off{number}.") from None
        finally:
            connection.close()

    def _connection(self, timeout: float) -> HTTPConnection:
        host = self._parts.hostname or ""
        if self._parts.scheme == "https":
            return HTTPSConnection(host, self._port, timeout=timeout)
        return HTTPConnection(host, self._port, timeout=timeout)


def _address(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits or not url.isascii() or not url.isprintable() or " " in url:
        raise RefusedError(f"--url {url[:200]!a} is no address such as http://127.0.0.1:8080/v1.")
    if parts.username is not None or parts.query or parts.fragment:
        raise RefusedError("--url carries more than an address; give a key with --key, and no query.")
    return parts


def _hint(status: int) -> str:
    if status in (401, 403):
        return "; give its key with --key"
    if status == 404:
        return "; look at the path of --url"
    return "; redirects are not followed" if 300 <= status < 400 else ""


def _body(request: ServerRequest) -> bytes:
    body: dict[str, Any] = {
        "model": request.model,
        "messages": list(request.messages),
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
        "top_p": request.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.top_k:
        body["top_k"] = request.top_k
    if request.seed is not None:
        body["seed"] = request.seed
    if request.ignore_eos:
        body["ignore_eos"] = True
    return json.dumps(body).encode("ascii")
