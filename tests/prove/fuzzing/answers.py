"""Reads answers off the wire strictly: each is framed by its own head, and its body must be what the head says."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2}) [ -~]+")
_HEADER = re.compile(r"([A-Za-z0-9-]+): ([\t -~\x80-\xff]*)")


class FormError(ValueError):
    """Bytes that are no answer."""


@dataclass
class Answer:
    """One answer; `value` is its JSON, `events` those of a stream. A `cut` one ended before it was whole."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    cut: bool = False
    value: Any = None
    events: list[Any] = field(default_factory=list)

    @property
    def error(self) -> Any:
        """The error it holds, in its body or as an event."""
        for value in (self.value, *self.events):
            if isinstance(value, dict) and "error" in value:
                return value["error"]
        return None

    @property
    def streamed(self) -> bool:
        """Whether it is a stream of events."""
        return self.headers.get("content-type", "").startswith("text/event-stream")

    @property
    def closes(self) -> bool:
        """Whether the connection ends with it."""
        return self.headers.get("connection", "").lower() == "close"


def take(data: bytes, method: str, ended: bool) -> tuple[Answer | None, bytes]:
    """The first whole answer and what follows it; None while more must come. Raises FormError.

    `method` is the request's; `ended` tells that nothing more comes.
    """
    head, mark, rest = data.partition(b"\r\n\r\n")
    if not mark:
        if ended and data:
            raise FormError(f"the connection ended inside a head: {data[:80]!r}")
        return None, data
    status, headers = _read_head(head)
    if 100 <= status < 200:
        return take(rest, method, ended)
    answer = Answer(status, headers)
    body, whole, after = _body(answer, rest, method, ended)
    if not whole and not ended:
        return None, data
    answer.body, answer.cut = body, not whole
    if whole and method != "HEAD":
        read_body(answer)
    return answer, after


def _read_head(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.split(b"\r\n")
    start = _STATUS.fullmatch(first)
    if start is None:
        raise FormError(f"no status line: {first[:80]!r}")
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line.decode("latin-1"))
        if found is None:
            raise FormError(f"no header: {line[:80]!r}")
        name = found[1].lower()
        if name in headers and name not in ("vary", "set-cookie"):
            raise FormError(f"two headers {name}")
        headers[name] = found[2]
    return int(start[1]), headers


def _body(answer: Answer, rest: bytes, method: str, ended: bool) -> tuple[bytes, bool, bytes]:
    """The body, whether it is whole, and what follows it."""
    if method == "HEAD" or answer.status in (204, 304):
        return b"", True, rest
    headers = answer.headers
    if headers.get("transfer-encoding") == "chunked":
        return _dechunked(rest)
    if "content-length" in headers:
        length = int(headers["content-length"])
        return rest[:length], len(rest) >= length, rest[length:]
    return rest, ended, b""


def _dechunked(data: bytes) -> tuple[bytes, bool, bytes]:
    parts: list[bytes] = []
    while True:
        size, mark, rest = data.partition(b"\r\n")
        if not mark:
            return b"".join(parts), False, b""
        if not re.fullmatch(b"[0-9A-Fa-f]+", size):
            raise FormError(f"no size of a chunk: {size[:40]!r}")
        length = int(size, 16)
        if len(rest) < length + 2:
            return b"".join(parts), False, b""
        if rest[length : length + 2] != b"\r\n":
            raise FormError("a chunk longer than it says")
        parts.append(rest[:length])
        data = rest[length + 2 :]
        if length == 0:
            return b"".join(parts), True, data


def read_body(answer: Answer) -> None:
    """Parse what the head says the body is. Raises FormError."""
    kind = answer.headers.get("content-type", "")
    if answer.status == 200 and answer.headers.get("content-length") == "0":
        # The answer to OPTIONS.
        return
    if kind.startswith("application/json"):
        try:
            answer.value = json.loads(answer.body)
        except ValueError:
            raise FormError(f"no JSON: {answer.body[:80]!r}") from None
    elif answer.streamed:
        answer.events = _events(answer.body)
    elif not (kind.startswith("text/plain") and answer.status == 200) and answer.body:
        raise FormError(f"a body of the type {kind!r}: {answer.body[:80]!r}")


def _events(body: bytes) -> list[Any]:
    frames = body.split(b"\n\n")
    if frames.pop() or not frames or frames[-1] != b"data: [DONE]" or frames.count(b"data: [DONE]") != 1:
        raise FormError(f"the events do not end in one [DONE]: {body[-80:]!r}")
    values = []
    for frame in frames[:-1]:
        if frame.startswith(b":"):
            continue
        if not frame.startswith(b"data: ") or b"\n" in frame:
            raise FormError(f"no event: {frame[:80]!r}")
        try:
            values.append(json.loads(frame[6:]))
        except ValueError:
            raise FormError(f"no JSON in an event: {frame[:80]!r}") from None
    return values
