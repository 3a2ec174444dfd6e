"""Changes to a body that mean nothing: the reply must be the very same.

Unknown fields, fields at the values that change nothing, numbers as text, contents in parts, and garbage under a key
that is written again.
"""

from __future__ import annotations

import gzip
import random
from typing import Any

from tests.prove.fuzzing.good import CHAT, Good
from tests.prove.fuzzing.inputs import Input
from tests.prove.fuzzing.values import CONSTANTS, TEXTS
from tests.prove.fuzzing.writing import Pairs, style, write

NEUTRAL: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("n", (None, 1, "1", 1.0)),
    ("best_of", (None, 1)),
    ("min_tokens", (None, 0)),
    ("frequency_penalty", (None, 0, 0.0, "0")),
    ("presence_penalty", (None, 0)),
    ("repetition_penalty", (None, 1, 1.0)),
    ("logit_bias", (None, {})),
    ("logprobs", (None, False, 0)),
    ("top_logprobs", (None, 0)),
    ("response_format", (None, {"type": "text"})),
    ("model", (None, "", "gpt-x", "../../etc", "hash")),
    ("user", (None, "u", 5, {"a": []})),
    ("store", (True, False)),
    ("metadata", ({}, {"k": "v"})),
    ("service_tier", ("auto", None)),
    ("stream_options", (None, {}, {"include_usage": False}, {"include_usage": True})),
    ("max_completion_tokens", (None,)),
    ("draft", (None, True, False)),
    ("priority", (None, "foreground", "background")),
    ("return_token_ids", (None, True, False)),
    ("stop_token_ids", (None, [])),
    ("bad_words", (None, [])),
    ("guided_json", (None,)),
    ("structured_outputs", (None, {})),
    ("ignore_eos", (None, False)),
    ("top_k", (None,)),
    ("echo", (None, False)),
    ("x-unknown", (0, [[]], {"a": {"b": None}}, "\x00")),
    ("", (1,)),
    ("__class__", ("x", None)),
)
CHAT_NEUTRAL: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("parallel_tool_calls", (None, True, False)),
    ("functions", (None, [])),
    ("function_call", (None, "none", "auto")),
    ("tool_choice", (None, "auto")),
    ("chat_template_kwargs", (None, {}, {"note": 1})),
    ("reasoning_effort", (None, "none", "high")),
)
TYPES = ("application/json", "text/plain", "application/json; charset=utf-8", "application/x-www-form-urlencoded", "x")
PREFIXES = ("", "/v1", "//v1", "/v1/", "/v1//")


def respelled(chance: random.Random, goods: tuple[Good, ...]) -> Input:
    """A good request in another spelling; its reply is due."""
    number = chance.randrange(len(goods))
    good = goods[number]
    body = dict(good.body)
    for _ in range(chance.choice((0, 1, 2, 4))):
        pool = NEUTRAL + CHAT_NEUTRAL if good.path == CHAT else NEUTRAL
        name, values = chance.choice(pool)
        body[name] = chance.choice(values)
    _as_text(chance, body)
    if "messages" in body:
        body["messages"] = [_message(chance, message) for message in body["messages"]]
    text = write(_twice(chance, body), chance, style(chance))
    data = text.encode("utf-8-sig" if chance.random() < 0.05 else "utf-8")
    headers = []
    if chance.random() < 0.5:
        headers.append(("Content-Type", chance.choice(TYPES)))
    if chance.random() < 0.05:
        headers.append(("Content-Encoding", "gzip"))
        data = gzip.compress(data, 1, mtime=0)
    if chance.random() < 0.1:
        headers.append(("Transfer-Encoding", "chunked"))
    route = chance.choice(PREFIXES) + good.path.removeprefix("/v1") + chance.choice(("", "", "/", "?a=b&c"))
    return Input(data, route, tuple(headers), wanted=number, cuts=_cuts(chance, len(data)))


def _as_text(chance: random.Random, body: dict[str, Any]) -> None:
    for name in ("max_tokens", "temperature", "seed"):
        if chance.random() < 0.1:
            body[name] = str(body[name])
        elif chance.random() < 0.1:
            body[name] = float(body[name])


def _message(chance: random.Random, message: dict[str, Any]) -> dict[str, Any]:
    message = dict(message)
    content = message["content"]
    if chance.random() < 0.2:
        at = chance.randrange(len(content) + 1)
        message["content"] = [{"type": "text", "text": part} for part in (content[:at], content[at:])]
    if message["role"] == "system" and chance.random() < 0.3:
        message["role"] = "developer"
    if chance.random() < 0.1:
        message |= {"id": "m1", "agent": None, "traceId": [1]}
    return message


def _twice(chance: random.Random, body: dict[str, Any]) -> Any:
    """Some keys stand twice: the later one counts."""
    if chance.random() > 0.1:
        return body
    garbage = [(name, chance.choice(CONSTANTS + TEXTS)) for name in body if chance.random() < 0.3]
    return Pairs((*garbage, *body.items()))


def _cuts(chance: random.Random, size: int) -> tuple[int, ...]:
    return tuple(chance.randrange(1, size + 100) for _ in range(chance.choice((0, 0, 0, 0, 1, 3))))
