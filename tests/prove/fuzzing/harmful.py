"""Changes to a body that may mean anything: values, keys and parts replaced, moved and removed, and broken text.

Whatever comes of it, the answer must be in form; where it is a reply, it must be the right one for what was understood.
"""

from __future__ import annotations

import copy
import gzip
import random
from typing import Any

from tests.prove.fuzzing.good import CHAT, TEXT, Good
from tests.prove.fuzzing.inputs import Input
from tests.prove.fuzzing.values import BROKEN, BY_FIELD, value
from tests.prove.fuzzing.writing import Pairs, Raw, style, write

FIELDS = (
    "messages", "prompt", "model", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "min_p",
    "seed", "stop", "ignore_eos", "stream", "stream_options", "draft", "priority", "return_token_ids", "n", "best_of",
    "min_tokens", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "logprobs",
    "top_logprobs", "prompt_logprobs", "response_format", "guided_json", "guided_regex", "guided_choice",
    "guided_grammar", "structured_outputs", "thinking_budget", "stop_token_ids", "bad_words", "allowed_token_ids",
    "include_stop_str_in_output", "use_beam_search", "tools", "tool_choice", "parallel_tool_calls", "functions",
    "function_call", "reasoning_effort", "chat_template_kwargs", "echo", "suffix", "add_special_tokens", "audio",
    "modalities", "prediction", "user", "thinking",
)  # fmt: skip
BITS = (b"\x00", b"\xff", b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\xe2\x82", b"\xed\xa0\x80", b"\xc0\x80")
ENCODINGS = ("gzip", "x-gzip", "deflate", "br", "identity", "GZIP", "gzip, gzip", "")


def damaged(chance: random.Random, goods: tuple[Good, ...]) -> Input:
    """A good request with one change or several."""
    good = chance.choice(goods)
    body: Any = copy.deepcopy(good.body)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        body = _changed(chance, body)
    text = write(body, chance, style(chance))
    data = text.encode("utf-8", "surrogatepass")
    if chance.random() < 0.15:
        data = torn(chance, data)
    route = good.path if chance.random() < 0.9 else TEXT if good.path == CHAT else CHAT
    if chance.random() > 0.04:
        return Input(data, route)
    encoding = chance.choice(ENCODINGS)
    if encoding.lower().endswith("gzip") and chance.random() < 0.7:
        data = gzip.compress(data, 1, mtime=0)
        data = data if chance.random() < 0.6 else torn(chance, data)
    return Input(data, route, (("Content-Encoding", encoding),))


def oversized(chance: random.Random, limit: int) -> Input:
    """A body around and beyond the limit in bytes, plain, packed or made of very many parts."""
    kind = chance.randrange(6)
    route = chance.choice((CHAT, TEXT))
    if kind == 0:
        packed = gzip.compress(b" " * chance.choice((limit - 9, limit * 40)), 1, mtime=0)
        return Input(packed, route, (("Content-Encoding", "gzip"),))
    if kind == 1:
        return Input(b'{"prompt":' + b"[" * chance.choice((990, 100_000)), route)
    if kind == 2:
        return Input(b'{"x":[' + b"[]," * 50_000 + b"[]]}", route)
    size = chance.choice((limit - 1, limit, limit + 1, 2 * limit + 5000))
    head, tail = b'{"prompt":"', b'","max_tokens":1}'
    headers = (("Transfer-Encoding", "chunked"),) if kind == 3 and size > limit else ()
    return Input(head + b"a" * (size - len(head) - len(tail)) + tail, route, headers)


def _changed(chance: random.Random, body: Any) -> Any:
    kind = chance.randrange(10)
    if kind < 4 and isinstance(body, dict):
        name = chance.choice(FIELDS) if chance.random() < 0.7 else chance.choice(tuple(BY_FIELD))
        return body | {name: value(chance, name)}
    if kind == 4:
        return chance.choice((value(chance), [body], {"body": body}, Raw("")))
    if kind == 5 and isinstance(body, dict):
        items = [*body.items(), (chance.choice(FIELDS), value(chance))]
        chance.shuffle(items)
        return Pairs(tuple(items))
    return _inside(chance, body)


def _inside(chance: random.Random, body: Any) -> Any:
    """The body with one change at a random place, however deep."""
    if isinstance(body, dict) and body:
        name = chance.choice(tuple(body))
        if isinstance(body[name], (dict, list)) and body[name] and chance.random() < 0.7:
            return body | {name: _inside(chance, body[name])}
        kind = chance.randrange(5)
        rest = {key: part for key, part in body.items() if key != name}
        if kind == 0:
            return rest
        if kind == 1:
            return rest | {chance.choice((*FIELDS, "Role", name.upper(), name + " ", "")): body[name]}
        return body | {name: value(chance, name)}
    if isinstance(body, list) and body:
        at = chance.randrange(len(body))
        kind = chance.randrange(6)
        if kind < 3:
            return [*body[:at], _inside(chance, body[at]), *body[at + 1 :]]
        if kind == 3:
            return body[:at] + body[at + 1 :]
        return [*body[:at], *([value(chance)] if kind == 4 else [body[at]] * chance.choice((2, 3, 200))), *body[at:]]
    return value(chance)


def torn(chance: random.Random, data: bytes) -> bytes:
    """Bytes cut off, put in, left out, doubled or turned."""
    if not data:
        return chance.choice(BITS)
    at = chance.randrange(len(data))
    end = min(len(data), at + chance.choice((1, 1, 2, 8, 40)))
    kind = chance.randrange(6)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[end:]
    if kind == 2:
        return data[:at] + data[at:end] * 2 + data[end:]
    if kind == 3:
        return data[:at] + bytes((data[at] ^ (1 << chance.randrange(8)),)) + data[at + 1 :]
    if kind == 4:
        broken = str(chance.choice(BROKEN).text).encode()
        return data[:at] + broken + data[at:]
    return data[:at] + chance.choice(BITS) + data[at:]
