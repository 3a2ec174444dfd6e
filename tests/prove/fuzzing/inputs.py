"""One input of the fuzzing proof as a value, and its form on a command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

Manner = Literal["read", "fin", "reset", "close"]


@dataclass(frozen=True, slots=True)
class Input:
    """Bytes for the server.

    With a `route` they are the body of a request to it, which keeps its connection; else all that goes over a
    connection of their own, in the pieces that `cuts` make of them. A `manner` other than `read` says how the client
    leaves once everything is sent. `wanted` is the number of the good request whose reply must come all the same.
    """

    data: bytes
    route: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    manner: Manner = "read"
    cuts: tuple[int, ...] = ()
    wanted: int | None = None

    def pieces(self) -> Iterator[bytes]:
        """What is sent, in order."""
        raw = self._request() if self.route else self.data
        edges = [0, *(cut for cut in sorted(set(self.cuts)) if 0 < cut < len(raw)), len(raw)]
        for begin, end in pairwise(edges):
            yield raw[begin:end]

    def _request(self) -> bytes:
        lines = [f"POST {self.route} HTTP/1.1", "Host: localhost", *(f"{name}: {text}" for name, text in self.headers)]
        chunked = any(name.lower() == "transfer-encoding" for name, _ in self.headers)
        if not chunked:
            lines.append(f"Content-Length: {len(self.data)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (in_chunks(self.data, 37) if chunked else self.data)

    def with_data(self, data: bytes) -> Input:
        """The same with other bytes; the cuts and the reply that is due belong to the old ones."""
        return replace(self, data=data, cuts=(), wanted=None if data != self.data else self.wanted)

    def as_text(self) -> str:
        """One line of JSON."""
        shown: dict[str, Any] = {"data": self.data.decode("latin-1")}
        if self.route:
            shown |= {"route": self.route, "headers": self.headers}
        if self.manner != "read":
            shown["manner"] = self.manner
        if self.cuts:
            shown["cuts"] = self.cuts
        if self.wanted is not None:
            shown["wanted"] = self.wanted
        return json.dumps(shown)


def from_text(text: str) -> Input:
    """The input of a line made by `as_text`."""
    shown = json.loads(text)
    headers = tuple((name, value) for name, value in shown.get("headers", ()))
    return Input(
        shown["data"].encode("latin-1"),
        shown.get("route", ""),
        headers,
        shown.get("manner", "read"),
        tuple(shown.get("cuts", ())),
        shown.get("wanted"),
    )


def in_chunks(data: bytes, size: int) -> bytes:
    """A body in the chunked coding."""
    parts = [data[at : at + size] for at in range(0, len(data), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
