"""Bytes of whole connections: requests with odd heads and bodies, several in a row, torn, cut and left anyhow."""

from __future__ import annotations

import json
import random

from tests.prove.fuzzing.good import CHAT, TEXT, Good
from tests.prove.fuzzing.harmful import torn
from tests.prove.fuzzing.inputs import Input, Manner, in_chunks

METHODS = ("GET", "GET", "GET", "POST", "POST", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "TRACE", "CONNECT", "BREW")
ODD_METHODS = ("get", "", "G T", "GET\x00", "A" * 3000, "PRI", "\xff", "GÉT", "\x16\x03\x01", "{}")
PATHS = (
    "/", "/health", "/v1/health", "/models", "/v1/models", "/v1/models/hash", "/v1/models/a/b", "/recall", "/v1/recall",
    "/metrics", "/v1/metrics", CHAT, TEXT, "/chat/completions", "/completions", "/v1", "/v2/models", "/v1/v1/models",
    "/V1/MODELS", "//v1/models", "/v1/models/", "/v1/embeddings", "/v1/responses", "/v1/messages", "/favicon.ico",
    "/admin", "/x" * 100,
)  # fmt: skip
ODD_TARGETS = (
    "*", "", "http://localhost/v1/models", "https://x:99999/health", "http://[::1/health", "//evil/health", "/%00",
    "/%zz", "/v1/models/%2e%2e%2f", "/../../etc/passwd", "/v1/../v1/models", "/v1/models#x", "/\xff\xfe", "/v1/mod els",
    "localhost:80", "/" + "a" * 9000, "/?" + "b=" * 3000, "/v1/models/%F0%9F%98%80", "/v1/models/\u00e9", "/\x00",
    "/v1/models/%0d%0aX:%20y", "?x=1", "/v1/models?x=%", "/v1/models;a=b", "ftp://x/", "http:///health", "http://",
)  # fmt: skip
VERSIONS = ("HTTP/1.1",) * 12 + ("HTTP/1.0",)
ODD_VERSIONS = ("HTTP/0.9", "HTTP/2.0", "HTTP/1.2", "HTTP/1.1.1", "http/1.1", "HTTP/x", "", "HTTP/1.1 x", "ICY")
HEADERS = (
    "Host: localhost", "Host: 127.0.0.1:80", "Accept: */*", "Accept: text/html", "Connection: close",
    "Connection: keep-alive", "Origin: http://evil.example", "Origin: null", "Access-Control-Request-Method: POST",
    "Access-Control-Request-Headers: authorization, x-stainless-os", "Authorization: Bearer x", "x-api-key: y",
    "Authorization: Basic eDp5", "Range: bytes=0-1", "If-None-Match: *", "If-Modified-Since: never",
    "Expect: 100-continue",     "Content-Type: text/xml", "Accept-Encoding: gzip, br", "Cookie: a=b; c", "Upgrade: h2c",
    "X-Forwarded-For: 1.2.3.4", "Forwarded: for=x", "X-HTTP-Method-Override: DELETE", "Accept-Language: \xe9",
    "TE: trailers", "Referer: /",
    "User-Agent: " + "u" * 500, "X-Empty:", "X-Request-Id: a\tb", "Date: x", "Traceparent: 00-0-0-0",
)  # fmt: skip
ODD_HEADERS = (
    "Host: evil.example", "Host: a\x00b", "Host: [::1", "Host: ", "Host", ": x", " Folded: x", "X : y", "X\x00: y",
    "X: \x00", "\tfold", "Name With Blank: x", "Content-Length: -1", "Content-Length: +5", "Content-Length: 0x5",
    "Content-Length: 5, 5", "Content-Length: ", "Content-Length: 5\r\nContent-Length: 6", "Content-Length: \u00b2",
    "Content-Length: 99999999999999999999999", "Content-Length: 1e3", "Content-Length: 5 ", "Transfer-Encoding: gzip",
    "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: identity", "Transfer-Encoding: xchunked",
    "Transfer-Encoding: \x0bchunked", "Transfer-Encoding : chunked", "Transfer-Encoding: chunked\r\nContent-Length: 3",
    "Connection: transfer-encoding", "Connection: close, host", "Expect: 200-ok", "Authorization: Bearer \xff\xfe",
    "Authorization: Bearer", "x-api-key: \xc5\x99", "Origin: \xff", "X: " + "h" * 70_000, "X: \r", "X: a\rb",
    "\u00e9: x", "Content-Encoding: gzip", "Content-Encoding: br", "Content_Length: 5", "wsgi.input: x",
    "Content-Type: \x01", "Access-Control-Request-Headers: a b, \x7f, " + "z" * 80,
)  # fmt: skip
ENDS = ("\r\n",) * 14 + ("\n", "\r", "\r\n\r\n", "\n\r\n")
CHUNKS = (
    b"0\r\n\r\n", b"5\r\nabcde\r\n0\r\n\r\n", b"5;ext=1\r\nabcde\r\n0\r\n\r\n", b"005\r\nabcde\r\n0\r\n\r\n",
    b"5\r\nabcde0\r\n\r\n", b"ZZ\r\nab\r\n", b"-1\r\n\r\n", b"5\nabcde\n0\n\n", b"FFFFFFFFFFFFFFFF\r\nab\r\n",
    b"5\r\nab", b"0\r\nX-Trailer: y\r\n\r\n", b"\r\n", b"5 \r\nabcde\r\n0\r\n\r\n", b"0x5\r\nabcde\r\n0\r\n\r\n",
    b"1_0\r\na\r\n", b"+5\r\nabcde\r\n0\r\n\r\n", b"5;" + b"e" * 9000 + b"\r\nabcde\r\n0\r\n\r\n",
    b"2\r\nabcde\r\n0\r\n\r\n", b"0\r\n",
    b"a\r\n", b"f" * 5000,
)  # fmt: skip


def connection(chance: random.Random, goods: tuple[Good, ...]) -> Input:
    """All that one client sends."""
    count = chance.choice((1, 1, 1, 1, 2, 3, 6))
    data = b"".join(_request(chance, goods) for _ in range(count))
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        data = torn(chance, data)
    manner: Manner = "read"
    if chance.random() < 0.3:
        manner = chance.choice(("fin", "reset", "close"))
        data = data[: chance.randrange(len(data) + 1)] if chance.random() < 0.5 else data
    cuts = tuple(chance.randrange(1, len(data) + 2) for _ in range(chance.choice((0, 0, 0, 1, 4))))
    return Input(data, manner=manner, cuts=cuts)


def noise(chance: random.Random) -> Input:
    """Bytes that are no HTTP, often with the mark that ends a head."""
    data = chance.randbytes(chance.choice((1, 3, 20, 300, 5000)))
    if chance.random() < 0.3:
        data = bytes((data[0],)) * len(data)
    end = chance.choice((b"", b"\r\n", b"\r\n\r\n", b"\n\n"))
    return Input(data + end, manner=chance.choice(("read", "fin", "close")))


def _request(chance: random.Random, goods: tuple[Good, ...]) -> bytes:
    odd = chance.random() < 0.4
    end = chance.choice(ENDS) if odd else "\r\n"
    body, length = _body(chance, goods)
    lines = [_first_line(chance, odd)] if length is None else [f"POST {chance.choice((CHAT, TEXT))} HTTP/1.1"]
    lines += _headers(chance, odd)
    if length:
        lines.append(length)
    head = "".join(line + end for line in lines) + end
    return head.encode("utf-8" if chance.random() < 0.1 else "latin-1", "replace") + body


def _first_line(chance: random.Random, odd: bool) -> str:
    method, target, version = chance.choice(METHODS), chance.choice(PATHS), chance.choice(VERSIONS)
    if odd and (which := chance.randrange(5)) < 3:
        method = chance.choice(ODD_METHODS) if which == 0 else method
        target = chance.choice(ODD_TARGETS) if which == 1 else target
        version = chance.choice(ODD_VERSIONS) if which == 2 else version
    return chance.choice((" ",) * 12 + ("\t", "  ") if odd else (" ",)).join((method, target, version))


def _headers(chance: random.Random, odd: bool) -> list[str]:
    lines = ["Host: localhost"] if chance.random() < 0.9 else []
    lines += [chance.choice(HEADERS) for _ in range(chance.choice((0, 1, 1, 3)))]
    if odd and chance.random() < 0.7:
        lines.insert(chance.randrange(len(lines) + 1), chance.choice(ODD_HEADERS))
    if odd and chance.random() < 0.02:
        lines += [f"X-{number}: y" for number in range(chance.choice((200, 5000)))]
    return lines


def _body(chance: random.Random, goods: tuple[Good, ...]) -> tuple[bytes, str | None]:
    """A body and the line that says how it is sent; None asks for a request without one."""
    kind = chance.randrange(10)
    if kind < 4:
        return b"", None
    if kind == 4:
        return chance.choice(CHUNKS), "Transfer-Encoding: chunked"
    good = json.dumps(chance.choice(goods).body).encode()
    if kind == 5:
        return in_chunks(good, chance.choice((1, 7, 100, 5000))), "Transfer-Encoding: chunked"
    if kind == 6:
        good = torn(chance, good)
    wrong = chance.choice((-1, 1, 7, -len(good), 10**6)) if chance.random() < 0.15 else 0
    return good, f"Content-Length: {max(0, len(good) + wrong)}"
