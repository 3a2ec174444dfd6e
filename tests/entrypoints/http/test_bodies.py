"""What may arrive as a body, and what is said of everything else."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest

from tensorfold.application.orders import ChatOrder
from tensorfold.entrypoints.http.bodies import MAX_DEPTH, parse_object
from tensorfold.entrypoints.http.errors import ApiError
from tensorfold.entrypoints.http.limits import HttpLimits
from tests.entrypoints.http.wire import MESSAGES, error_of, in_process

GOOD = json.dumps({"messages": MESSAGES}).encode()
SMALL = HttpLimits(body_bytes=2**20)


@pytest.mark.parametrize(
    "body",
    [
        b"{not json",
        b'{"model":"m","stream":true,x}',
        b"",
        b"  \n",
        b'{"a":1,}',
        b'{"a":1}{"b":2}',
        b"[]",
        b'"text"',
        b"7",
        b"null",
        b"\xff\xfe{\x00}\x00",
        '{"messages":"ř'.encode("iso8859-2"),
        json.dumps({"messages": MESSAGES}).encode("utf-16"),
        b'{"seed":' + b"1" * 5000 + b"}",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"messages":' + b"[" * 300 + b"]" * 300 + b"}",
    ],
)
@pytest.mark.slow
def test_a_body_that_is_no_json_object_is_a_400_in_openais_shape(body: bytes) -> None:
    server = in_process()
    result = server.post(body)
    assert result.status_code == 400
    assert result.headers["content-type"] == "application/json"
    assert error_of(result)["type"] == "invalid_request_error"
    assert not server.chat.orders
    assert not server.told.faults
    assert server.gate.inside == 0


@pytest.mark.parametrize("part", [b"[],", b"{},", b"1,"])
def test_a_body_of_more_values_than_is_read_is_refused_before_it_is_parsed(
    part: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    each = part.count(b",") + part.count(b"[") + part.count(b"{")
    monkeypatch.setattr("tensorfold.entrypoints.http.bodies.MAX_PARTS", 300)
    fits = b'{"x": [' + part * (298 // each) + b"1]}"
    assert len(parse_object(fits)["x"]) == 298 // each + 1
    monkeypatch.setattr(json, "loads", lambda text: pytest.fail("parsed"))
    with pytest.raises(ApiError, match="more than 300 commas and brackets"):
        parse_object(b'{"x": [' + part * (298 // each + 1) + b"1]}")


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "nonsense",
        "application/json; charset=utf-16",
        None,
    ],
)
def test_json_is_read_whatever_the_content_type_says(content_type: str | None) -> None:
    server = in_process()
    headers = {} if content_type is None else {"Content-Type": content_type}
    assert server.post(GOOD, headers=headers).status_code == 200
    assert server.chat.order.options.stops == ()


def test_a_byte_order_mark_is_no_part_of_the_body() -> None:
    assert in_process().post(b"\xef\xbb\xbf" + GOOD).status_code == 200


@pytest.mark.parametrize(
    "packed", [gzip.compress(GOOD, mtime=0), gzip.compress(GOOD[:9], mtime=0) + gzip.compress(GOOD[9:], mtime=0)]
)
@pytest.mark.parametrize("name", ["gzip", "x-gzip", " GZIP "])
def test_gzip_is_unpacked(packed: bytes, name: str) -> None:
    assert in_process().post(packed, headers={"Content-Encoding": name}).status_code == 200


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        (GOOD, "gzip"),
        (gzip.compress(GOOD, mtime=0)[:-9], "gzip"),
        (gzip.compress(GOOD, mtime=0) + b"tail", "gzip"),
        (zlib.compress(GOOD), "deflate"),
        (GOOD, "br"),
        (gzip.compress(gzip.compress(GOOD, mtime=0), mtime=0), "gzip, gzip"),
    ],
)
def test_a_body_that_is_not_what_its_encoding_says_is_refused_by_that_name(body: bytes, encoding: str) -> None:
    result = in_process().post(body, headers={"Content-Encoding": encoding})
    assert result.status_code == 400
    assert "Content-Encoding" in error_of(result)["message"]


def test_a_gzip_bomb_stops_at_the_size_limit() -> None:
    member = gzip.compress(b" " * (8 * 2**20), mtime=0)
    for bomb in (member, gzip.compress(b" " * 2**19, mtime=0) * 8):
        result = in_process(limits=SMALL).post(bomb, headers={"Content-Encoding": "gzip"})
        assert result.status_code == 413
        assert error_of(result)["code"] == "request_too_large"


def test_a_body_over_the_limit_is_413_and_one_at_the_limit_is_read() -> None:
    filler = b" " * (2**20 - len(GOOD))
    server = in_process(limits=SMALL)
    assert server.post(GOOD + filler).status_code == 200
    result = server.post(GOOD + filler + b" ")
    assert result.status_code == 413
    error = error_of(result)
    assert error["code"] == "request_too_large"
    assert error["message"] == "The request body is larger than 1 MiB, the most this server reads."


def test_the_default_limit_is_32_mib() -> None:
    server = in_process()
    result = server.client.simulate_post(
        "/v1/chat/completions", body=b"{}", headers={"Content-Length": str(32 * 2**20 + 1)}
    )
    assert result.status_code == 413


@pytest.mark.parametrize("stream", ["true", "false"])
def test_unpaired_surrogates_become_replacement_characters(stream: str) -> None:
    server = in_process()
    text = r"x \ud83d y \ude00 \ud83d\ude00 \\ud83d"
    body = f'{{"stream":{stream},"messages":[{{"role":"user","content":"{text}"}}],"stop":["\\udc00"]}}'
    assert server.post(body.encode()).status_code == 200
    order = server.chat.order
    assert isinstance(order, ChatOrder)
    assert order.messages[0]["content"] == "x \ufffd y \ufffd \U0001f600 \\ud83d"
    assert order.options.stops == ("\ufffd",)


def test_surrogates_in_keys_and_nested_values_are_replaced_too() -> None:
    value = parse_object(rb'{"a\ud800":[{"b":"\udfff"},1,null,true]}')
    assert value == {"a\ufffd": [{"b": "\ufffd"}, 1, None, True]}


def test_of_a_key_that_stands_twice_the_last_value_counts() -> None:
    assert parse_object(b'{"n":1,"n":2}') == {"n": 2}


def nested(depth: int) -> bytes:
    return b'{"a":' * (depth - 1) + b"{}" + b"}" * (depth - 1)


def test_depth_is_bounded_and_text_full_of_brackets_is_not_depth() -> None:
    value: Any = parse_object(nested(MAX_DEPTH))
    for _ in range(MAX_DEPTH - 1):
        value = value["a"]
    assert value == {}
    assert parse_object(json.dumps({"text": "[{" * 5000}).encode()) == {"text": "[{" * 5000}
    result = in_process().post(nested(MAX_DEPTH + 1))
    assert error_of(result)["message"] == f"The request body nests more than {MAX_DEPTH} levels deep."
