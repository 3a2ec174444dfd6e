"""Requests that mean harm, or nothing at all: each is answered in form or hung up on, and the next one is served.

Bodies that are too large, too deep, not text, not JSON or packed; numbers without end; heads that are no HTTP; and
many requests that never come to their end.
"""

from __future__ import annotations

import gzip
import json
import random
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from tensorfold.application.settings import EngineSettings
from tests.end_to_end.clients import Client, ask, get, post_bytes, request_bytes
from tests.end_to_end.crowd import residue
from tests.end_to_end.hash_server import Place, asked, hash_model, hash_server, until
from tests.end_to_end.residue import held

MIB = 1 << 20
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SILENCE_S = 0.5
"""How long a request that is not whole is left without an answer before its client gives up."""


@dataclass(frozen=True, slots=True)
class Hostile:
    """Bytes, and the statuses that may answer them; none: the connection may close, or stay silent, without one."""

    name: str
    data: bytes
    statuses: tuple[int, ...]

    def __str__(self) -> str:
        return self.name


@dataclass
class Siege:
    """What hostile requests did to a server."""

    tried: int = 0
    halves: int = 0
    wrong: list[str] = field(default_factory=list)
    residue: list[str] = field(default_factory=list)

    def misses(self) -> list[str]:
        """What is wrong; empty when it holds."""
        return [*self.wrong, *self.residue]


def bodies() -> Iterator[Hostile]:
    """Requests whose body is the trouble."""
    for name, body, statuses in _json_bodies():
        yield Hostile(name, post_bytes(TEXT, body), statuses)
    packed = {"Content-Encoding": "gzip"}
    blanks = gzip.compress(b" " * (64 * MIB), 9)
    for name, body, status in (
        ("a gzip bomb", blanks, 413),
        ("gzip bombs in a row", gzip.compress(b" " * (12 * MIB), 9) * 4, 413),
        ("gzip cut off", gzip.compress(b'{"prompt": "x"}')[:-4], 400),
        ("gzip that is none", b"not packed", 400),
    ):
        yield Hostile(name, post_bytes(CHAT, body, packed), (status,))
    yield Hostile("an unknown packing", post_bytes(CHAT, b"x", {"Content-Encoding": "br"}), (400,))
    yield Hostile("33 MiB", post_bytes(CHAT, b'{"messages": "' + b"x" * (33 * MIB) + b'"}'), (413,))


def _json_bodies() -> Iterator[tuple[str, bytes, tuple[int, ...]]]:
    deep = 200_000
    yield "deep lists", b"[" * deep, (400,)
    yield "deep objects", b'{"prompt": ' + b'{"a":' * deep + b"1" + b"}" * deep + b"}", (400,)
    yield "ten million lists", b'{"prompt": "x", "y": [' + b"[]," * 10_000_000 + b"[]]}", (400,)
    yield "two million keys", b"{" + b",".join(b'"%d":0' % n for n in range(2_000_000)) + b"}", (400,)
    yield "no body", b"", (400,)
    yield "not UTF-8", b'{"prompt": "\xff\xfe"}', (400,)
    yield "UTF-16", '{"prompt": "x"}'.encode("utf-16"), (400,)
    yield "half a character", b'{"prompt": "\xe2\x82', (400,)
    yield "a lone surrogate", b'{"prompt": "\\ud800x", "max_tokens": 2}', (200,)
    yield "a null character", b'{"prompt": "\\u0000", "max_tokens": 2}', (200,)
    yield "an id of 5,000 digits", b'{"prompt": [' + b"9" * 5000 + b"]}", (400,)
    for name, value in (("2 to 63", 2**63), ("10 to 30", 10**30), ("minus one", -1), ("a fraction", 1.5)):
        yield f"an id of {name}", json.dumps({"prompt": [value]}).encode(), (400,)
    yield "more ids than the window holds", json.dumps({"prompt": [1] * 200_000, "max_tokens": 2}).encode(), (400,)
    yield "more text than the window holds", json.dumps({"prompt": "x " * MIB, "max_tokens": 2}).encode(), (400,)
    for limit in ("1" + "0" * 30, "-1", "0", "1.5", "true", '"many"', "[1]", str(2**31)):
        yield f"max_tokens {limit}", f'{{"prompt": [1], "max_tokens": {limit}}}'.encode(), (400,)
    for number in (b"1e999", b"NaN", b"-Infinity", b"-1"):
        yield f"temperature {number.decode()}", b'{"prompt": [1], "temperature": ' + number + b"}", (400,)
    yield "a temperature near zero", b'{"prompt": [1], "max_tokens": 2, "temperature": 5e-324}', (200,)
    yield "a temperature near the end", b'{"prompt": [1], "max_tokens": 2, "temperature": 1.7e308}', (200,)
    yield "a long stop", json.dumps({"prompt": [1], "stop": "x" * MIB}).encode(), (400,)
    yield "many stops", json.dumps({"prompt": [1], "stop": ["x"] * 10_000}).encode(), (400,)
    yield "a long model name", json.dumps({"prompt": [1], "max_tokens": 2, "model": "\0" * MIB}).encode(), (200,)


def heads() -> Iterator[Hostile]:
    """Requests whose head is the trouble."""
    host = b"Host: localhost\r\n"
    post = b"POST " + TEXT.encode() + b" HTTP/1.1\r\n" + host
    get_root = b"GET / HTTP/1.1\r\n" + host
    noise = random.Random(7).randbytes(4096)
    for name, data, statuses in (
        ("a TLS greeting", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + noise[:300] + b"\r\n\r\n", (400,)),
        ("noise", noise + b"\r\n\r\n", (400,)),
        ("null characters", b"\0" * 2000 + b"\r\n\r\n", (400,)),
        ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", (400, 404)),
        ("a method with a control character", b"G\x01T / HTTP/1.1\r\n" + host + b"\r\n", (400,)),
        ("a long method", b"A" * 5000 + b" / HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n", (400,)),
        ("a long line", b"GET /" + b"a" * (300 << 10) + b" HTTP/1.1\r\n" + host + b"\r\n", (431,)),
        ("a long header", get_root + b"X: " + b"a" * (300 << 10) + b"\r\n\r\n", (431,)),
        ("a header without a colon", get_root + b"nothing\r\n\r\n", (400,)),
        (
            "a path out of the server",
            b"GET /../../etc/passwd HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n",
            (404,),
        ),
        ("a path of nulls", b"GET /%00%ff%zz HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n", (404,)),
        ("a broken address", b"GET http://[::1/health HTTP/1.1\r\n" + host + b"\r\n", (400,)),
        ("another host", b"GET /health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", (403,)),
        ("a negative length", post + b"Content-Length: -5\r\n\r\nabc", (400,)),
        ("a length in words", post + b"Content-Length: five\r\n\r\nabcde", (400,)),
        ("two lengths", post + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcde", (400,)),
        ("a length beyond everything", post + b"Content-Length: 1000000000000000000\r\n\r\nabc", (413,)),
        ("an unknown coding", post + b"Transfer-Encoding: gzip\r\n\r\nabc", (400,)),
        ("a chunk of no size", post + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc\r\n", (400,)),
        ("a chunk beyond everything", post + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFF\r\nabc\r\n", ()),
        ("a body that never comes", post + b"Content-Length: 5\r\nExpect: 100-continue\r\n\r\n", ()),
    ):
        yield Hostile(name, data, statuses)


def besiege(requests: Iterator[Hostile], halves: int) -> Siege:
    """Every hostile request, each followed by a good one; then many half ones at once beside a good one."""
    seen = Siege()
    (good,) = asked([{"prompt": [1, 2, 3], "max_tokens": 8}])
    inner = hash_model()
    with hash_server(inner, EngineSettings(parallel=2, queue=8)) as place:
        ask(place.port, good)
        place.until_empty()
        before = held()
        for request in requests:
            seen.tried += 1
            if wrong := _attack(place, request):
                seen.wrong.append(f"{request}: {wrong}")
            if not ask(place.port, good).equals(good):
                seen.wrong.append(f"{request}: the next request was not served")
        seen.halves = halves
        with ExitStack() as open_ones:
            for index in range(halves):
                client = Client(place.port)
                open_ones.callback(client.leave, "reset" if index % 2 else "close")
                whole = request_bytes(good)
                # Half of them stop in the head, half in the body.
                client.send(whole[: 20 if index % 4 < 2 else len(whole) - 3])
            until(lambda: place.http.connections >= halves, "every half request")
            if not ask(place.port, good).equals(good) or get(place.port, "/health")[0] != 200:
                seen.wrong.append(f"beside {halves} half requests a whole one was not served")
        place.until_empty()
        until(lambda: place.http.connections == 0, lambda: f"{place.http.connections} connections are left")
        seen.residue = residue(before)
        if inner.lanes() or place.counters.integrity_faults:
            seen.wrong.append(f"lanes {inner.lanes()}, {place.counters.integrity_faults} integrity faults")
        seen.wrong += [f"the server's own fault in {where}: {fault!r}" for where, fault in place.faults]
    return seen


def _attack(place: Place, request: Hostile) -> str:
    """Send, read what comes until the server closes or is silent; what is wrong with it, or nothing."""
    data = b""
    with socket.create_connection(("127.0.0.1", place.port), timeout=60.0) as client:
        # The server may hang up in the middle of what it will not read; what it answered may then be lost on the way.
        lost = False
        try:
            client.sendall(request.data)
            client.settimeout(60.0 if request.statuses else SILENCE_S)
            while part := client.recv(65536):
                data += part
        except TimeoutError:
            return f"no answer, {request.statuses} is due" if request.statuses else ""
        except OSError:
            lost = True
    if not data:
        return "" if lost or not request.statuses else f"closed without an answer, {request.statuses} is due"
    return _judge(request, data)


def _judge(request: Hostile, data: bytes) -> str:
    head, _, body = data.partition(b"\r\n\r\n")
    with suppress(ValueError, IndexError):
        status = int(head.split(b" ", 2)[1])
        if request.statuses and status not in request.statuses:
            return f"answered {status}, {request.statuses} is due: {body[:200]!r}"
        error = json.loads(body).get("error")
        if status >= 400 and sorted(error) != ["code", "message", "param", "type"]:
            return f"an error out of form: {body[:200]!r}"
        return ""
    return f"an answer out of form: {data[:200]!r}"
