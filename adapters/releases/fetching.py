"""Fetches a small document over HTTP within a time and a size that hold whatever the other side does.

The work runs on a thread of its own; when its time is over its connections are shut, so that a server which sends a
byte now and then, or none, holds neither the caller nor a thread. Redirects stay with https or on the same host.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from typing import IO, Any, Self

_REDIRECTS = 3
_HEADERS = {"User-Agent": "tensorfold"}


def fetch(url: str, accept: str, most_bytes: int, timeout: float) -> bytes | None:
    """The body of a 200 answer of at most `most_bytes`; None for anything else, after `timeout` seconds at the latest.

    Proxies are those that the environment names.
    """
    work = _Fetch(url, accept, most_bytes, timeout)
    thread = threading.Thread(target=work.run, name="fetch", daemon=True)
    thread.start()
    thread.join(timeout)
    work.end()
    return work.body


class _Fetch:
    """One fetch; `body` is its result, set at most once and never after `end`."""

    def __init__(self, url: str, accept: str, most_bytes: int, timeout: float) -> None:
        self._request = urllib.request.Request(url, headers={**_HEADERS, "Accept": accept})
        self._most_bytes = most_bytes
        self._timeout = timeout
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._ended = False
        self.body: bytes | None = None

    def run(self) -> None:
        """Fetch; on the thread."""
        try:
            opener = urllib.request.build_opener(_Plain(self), _Secure(self), _Redirects())
            with opener.open(self._request, timeout=self._timeout) as answer:
                body = self._read(answer) if answer.status == 200 else None
        except (OSError, ValueError, http.client.HTTPException):
            # Unreachable, refused, cut, malformed or badly certified: all of it is no answer.
            return
        with self._lock:
            if not self._ended:
                self.body = body

    def end(self) -> None:
        """From now on nothing comes any more; what still runs is cut."""
        with self._lock:
            self._ended = True
            while self._sockets:
                _shut(self._sockets.pop())

    def opened(self, sock: socket.socket) -> None:
        """A connection was made; `sock` is the fetch's from now on."""
        with self._lock:
            self._sockets.append(sock)
            if self._ended:
                _shut(self._sockets.pop())

    def _read(self, answer: Any) -> bytes | None:
        body: bytes = answer.read(self._most_bytes + 1)
        # A body that ended before its stated length is cut, not whole.
        return None if len(body) > self._most_bytes or answer.length else body


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


class _Watched(http.client.HTTPConnection):
    """A connection that tells its fetch about its socket as soon as there is one."""

    def tells(self, fetch: _Fetch) -> Self:
        """Tell `fetch`."""

        def create(*words: Any, **named: Any) -> socket.socket:
            sock = socket.create_connection(*words, **named)
            # A copy of the descriptor: TLS takes the original over, and shutting either shuts the connection.
            fetch.opened(sock.dup())
            return sock

        self._create_connection = create
        return self


class _WatchedSecure(_Watched, http.client.HTTPSConnection):
    """The same over TLS."""


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, fetch: _Fetch) -> None:
        super().__init__()
        self._fetch = fetch

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(lambda host, **named: _Watched(host, **named).tells(self._fetch), req)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, fetch: _Fetch) -> None:
        super().__init__()
        self._fetch = fetch

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        secure = ssl.create_default_context()
        return self.do_open(lambda host, **named: _WatchedSecure(host, context=secure, **named).tells(self._fetch), req)


class _Redirects(urllib.request.HTTPRedirectHandler):
    max_redirections = _REDIRECTS

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        old, new = urllib.parse.urlsplit(req.full_url), urllib.parse.urlsplit(newurl)
        if new.scheme != "https" and (new.scheme, new.netloc) != (old.scheme, old.netloc):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)
