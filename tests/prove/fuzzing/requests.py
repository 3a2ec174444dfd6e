"""What a strict reader makes of the bytes of a connection: how many whole requests they are, and what follows them.

A second reading of HTTP, apart from the server's: where the bytes are beyond doubt, so is the number of answers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Rest = Literal["none", "part", "doubtful"]
MOST_HEAD = 60_000
_FIRST = re.compile(rb"([A-Z]+) (/[!-~]*) HTTP/1\.([01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[0-9A-Za-z]+(?:=[0-9A-Za-z]+)?)*\r\n")


@dataclass(frozen=True, slots=True)
class Request:
    """One whole request; header names are lower-case."""

    method: str
    target: str
    headers: dict[str, str]
    last: bool
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Reading:
    """Whole requests, and what the rest is: nothing, the beginning of one more, or bytes that are no request."""

    requests: tuple[Request, ...]
    rest: Rest


def read_requests(data: bytes) -> Reading:
    """Read to the end, to the request that closes the connection, or to the first doubt."""
    found: list[Request] = []
    while data:
        head, mark, rest = data.partition(b"\r\n\r\n")
        if not mark:
            return Reading(tuple(found), "part" if _begins_well(data) else "doubtful")
        request = _read_head(head)
        if request is None or len(head) > MOST_HEAD:
            return Reading(tuple(found), "doubtful")
        size = _body_size(request, rest)
        if not isinstance(size, int):
            return Reading(tuple(found), size)
        if "transfer-encoding" not in request.headers:
            request = Request(request.method, request.target, request.headers, request.last, rest[:size])
        found.append(request)
        if request.last:
            break
        data = rest[size:]
    return Reading(tuple(found), "none")


def _begins_well(data: bytes) -> bool:
    """Whether every whole line so far is in form; a line that is not whole may become anything."""
    lines = data.split(b"\r\n")[:-1]
    good_first = not lines or _FIRST.fullmatch(lines[0]) is not None
    return good_first and all(_HEADER.fullmatch(line) for line in lines[1:]) and b"\n" not in data.replace(b"\r\n", b"")


def _read_head(head: bytes) -> Request | None:
    first, *lines = head.split(b"\r\n")
    start = _FIRST.fullmatch(first)
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            return None
        name, text = found[1].decode().lower(), found[2].decode("latin-1")
        if name in headers and name in ("host", "content-length", "transfer-encoding", "connection"):
            return None
        headers[name] = text
    if start is None or not _sized_plainly(headers) or "_" in "".join(headers):
        return None
    connection = headers.get("connection", "").lower()
    old = start[3] == b"0"
    if connection not in ("", "close", "keep-alive") or (old and "transfer-encoding" in headers):
        return None
    last = connection == "close" or (old and connection != "keep-alive")
    return Request(start[1].decode(), start[2].decode(), headers, last)


def _sized_plainly(headers: dict[str, str]) -> bool:
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if coding is not None:
        return length is None and coding.lower() == "chunked"
    return length is None or re.fullmatch("[0-9]{1,7}", length) is not None


def _body_size(request: Request, rest: bytes) -> int | Rest:
    """Bytes of the body on the wire, or why they cannot be told."""
    if "transfer-encoding" not in request.headers:
        length = int(request.headers.get("content-length", "0"))
        return length if len(rest) >= length else "part"
    at = 0
    while True:
        line = _CHUNK.match(rest, at)
        if line is None:
            return "part" if re.fullmatch(rb"[0-9A-Fa-f]{0,8}\r?", rest[at:]) else "doubtful"
        size = int(line[1], 16)
        at = line.end()
        if size == 0:
            if rest[at : at + 2] == b"\r\n":
                return at + 2
            return "part" if rest[at:] in (b"", b"\r") else "doubtful"
        end = rest[at + size : at + size + 2]
        if end != b"\r\n":
            return "part" if b"\r\n".startswith(end) else "doubtful"
        at += size + 2
