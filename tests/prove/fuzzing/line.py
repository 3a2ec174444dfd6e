"""A client's connection that reads answers strictly and waits a second for each, no more."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable

from tests.prove.fuzzing.answers import Answer, FormError, take
from tests.prove.fuzzing.inputs import Manner

MOST_S = 1.0
"""How long the server may take for anything."""
QUIET_S = 0.03
"""How long bytes that may or may not be a request are left without an answer before their client hangs up."""
_NO_LINGER = struct.pack("ii", 1, 0)


class SlowError(Exception):
    """More than a second passed without what was due."""


class Line:
    """One connection. `lost` tells that the server hung up."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=MOST_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self.lost = False

    def send(self, pieces: Iterable[bytes]) -> None:
        """Send everything, or as much as the server takes before it hangs up. Raises SlowError."""
        try:
            for piece in pieces:
                self._socket.settimeout(MOST_S)
                self._socket.sendall(piece)
        except TimeoutError:
            raise SlowError("the server reads nothing") from None
        except OSError:
            # What it answered before may still be there.
            return

    def answer(self, method: str) -> Answer | None:
        """The next answer; None when the connection ended without one. Raises SlowError or FormError."""
        deadline = time.monotonic() + MOST_S
        while True:
            answer, self._data = take(self._data, method, self.lost)
            if answer is not None or self.lost:
                # The server's thread is in this process: it must come back from sending before the next request does.
                time.sleep(0)
                return answer
            self._more(deadline)

    def to_the_end(self, quiet_s: float = MOST_S) -> list[Answer]:
        """Every answer up to the end of the connection, which this side asks for once it was quiet for so long."""
        waits = [time.monotonic() + quiet_s] if quiet_s < MOST_S else []
        while not self.lost:
            try:
                self._more(waits[0] if waits else time.monotonic() + MOST_S)
            except SlowError:
                if not waits:
                    raise
                waits.clear()
                self.goodbye()
        answers = []
        while self._data:
            answer, self._data = _any_method(self._data)
            if answer is None:
                break
            answers.append(answer)
        return answers

    def goodbye(self) -> None:
        """Say that nothing more comes."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError:
            self.lost = True

    def leave(self, manner: Manner) -> None:
        """Go; `fin` waits until the server has hung up too. Raises SlowError."""
        if manner == "reset":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        elif manner == "fin":
            self.goodbye()
            deadline = time.monotonic() + MOST_S
            while not self.lost:
                self._more(deadline)
        self._socket.close()

    def _more(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise SlowError(f"nothing more came behind {self._data[-80:]!r}")
        self._socket.settimeout(left)
        try:
            part = self._socket.recv(65536)
        except TimeoutError:
            raise SlowError(f"nothing more came behind {self._data[-80:]!r}") from None
        except OSError:
            part = b""
        self.lost = not part
        self._data += part


def _any_method(data: bytes) -> tuple[Answer | None, bytes]:
    """An answer to a request whose method nobody can tell: to a HEAD, or to any other."""
    try:
        answer, rest = take(data, "GET", True)
        if not answer or not answer.cut:
            return answer, rest
    except FormError:
        answer, rest = None, b""
    headless = take(data, "HEAD", True)
    # Behind the answer to a HEAD stands another answer; anything else is the body of one that its client cut short.
    return headless if headless[1].startswith(b"HTTP/1.") or answer is None else (answer, rest)
