"""From the bytes of a request to a JSON object, whatever the Content-Type says.

Bounded in size (also after decompression) and in depth, strict UTF-8, unpaired surrogates replaced by U+FFFD: what
comes out can be rendered, encoded and walked without surprises. Knows no field of any request.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

import falcon

from tensorfold.entrypoints.http.errors import ApiError, bad_request

MAX_DEPTH = 100
MAX_PARTS = 1_100_000
"""Commas and brackets in a body, those in its texts included: room for a prompt of 1,048,576 ids. The parser lets no
other thread run, and millions of tiny values would keep it, and with it every running reply, for many seconds."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_MEMBER = 31  # zlib: a gzip member, its header and checksum included


def read_object(req: falcon.Request, limit: int) -> dict[str, Any]:
    """The request's JSON object. Raises ApiError: 413 over `limit` bytes, 400 for anything else that is wrong."""
    return parse_object(_plain(req, limit))


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object from UTF-8 bytes. Raises ApiError (400)."""
    if not body.strip():
        raise bad_request("The request body is empty; send a JSON object.")
    brackets = body.count(b"[") + body.count(b"{")
    if brackets + body.count(b",") > MAX_PARTS:
        raise bad_request(
            f"The request body has more than {MAX_PARTS} commas and brackets, the most this server reads."
        )
    try:
        value = json.loads(body.decode("utf-8-sig"))
    except UnicodeDecodeError as wrong:
        raise bad_request(f"The request body is not UTF-8: byte {wrong.start} begins no character.") from None
    except json.JSONDecodeError as wrong:
        raise bad_request(f"The request body is not JSON; reading stopped at character {wrong.pos}.") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise bad_request("The request body holds a number with too many digits.") from None
    if not isinstance(value, dict):
        raise bad_request("The request body must be a JSON object.")
    if brackets > MAX_DEPTH:
        _check_depth(value)
    if _SURROGATE.search(body):
        value = _whole_text(value)
    assert isinstance(value, dict)
    return value


def _plain(req: falcon.Request, limit: int) -> bytes:
    if (req.content_length or 0) > limit:
        raise _too_large(limit)
    body: bytes = req.bounded_stream.read()
    encoding = (req.get_header("Content-Encoding") or "identity").strip().lower()
    if encoding == "identity":
        return body
    if encoding not in ("gzip", "x-gzip"):
        raise bad_request("Content-Encoding is neither `gzip` nor `identity`; send the body in one of these.")
    return _gunzip(body, limit)


def _gunzip(body: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    room = limit
    while body:
        member = zlib.decompressobj(_MEMBER)
        try:
            part = member.decompress(body, room + 1)
        except zlib.error:
            raise bad_request("Content-Encoding says gzip, but the body is not gzip data.") from None
        room -= len(part)
        if room < 0:
            raise _too_large(limit)
        if not member.eof:
            raise bad_request("Content-Encoding says gzip, but the gzip data ends early.")
        parts.append(part)
        body = member.unused_data.lstrip(b"\0")
    return b"".join(parts)


def _too_large(limit: int) -> ApiError:
    message = f"The request body is larger than {limit // 2**20} MiB, the most this server reads."
    return ApiError(413, message, code="request_too_large")


def _too_deep() -> ApiError:
    return bad_request(f"The request body nests more than {MAX_DEPTH} levels deep.")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node) if isinstance(child, (dict, list))]
        if not level:
            return
    raise _too_deep()


def _children(node: Any) -> Any:
    return node.values() if isinstance(node, dict) else node


def _whole_text(value: Any) -> Any:
    """The same value with every unpaired surrogate replaced; depth is bounded before."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_whole_text(item) for item in value]
    if isinstance(value, dict):
        return {_whole_text(key): _whole_text(item) for key, item in value.items()}
    return value
