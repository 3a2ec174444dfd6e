"""Good requests of every kind with the reply each must get, made by the serial reference alone.

What a request's prompt is, is worked out here a second time, from the fake template's documented form.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tensorfold.application.replies import token_sha
from tensorfold.domain.sampling import Sampling
from tests.end_to_end.hash_server import LAW, TOKENIZER
from tests.fakes.serial import SerialCase, SerialReply, serial_references
from tests.fakes.tokenizer import ASSISTANT, END, SYSTEM, TOOL, USER

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
COUNT = 96
WORDS = ("tide", "ř", "Größe", "tail 😀", "a\nb", "\u2028", '"quoted"', "\\", "0", "the of ing")
TOOLS = [
    {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}},
    {"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}},
]


@dataclass(frozen=True, slots=True)
class Due:
    """A reply that is due: its text, why it ends, the fingerprint of its ids and how many there are."""

    text: str
    finish: str
    sha: str
    prompt_tokens: int
    completion_tokens: int


@dataclass(frozen=True, slots=True)
class Good:
    """A request and the reply it must get."""

    path: str
    body: dict[str, Any]
    due: Due


def due(case: SerialCase, reply: SerialReply) -> Due:
    """What of a serial reply is shown."""
    data = b"".join(map(TOKENIZER.token_bytes.of, reply.tokens))
    if reply.stop is not None:
        data = data[: data.find(reply.stop)]
    text = data.decode("utf-8", "replace")
    return Due(text, reply.finish, token_sha(reply.tokens), len(case.prompt), len(reply.tokens))


@cache
def goods() -> tuple[Good, ...]:
    """The same requests in every process."""
    chance = random.Random("good requests")
    asked = [_asked(chance, number) for number in range(COUNT)]
    plain = serial_references(LAW, [case for _, _, case in asked], TOKENIZER.shown_bytes)
    asked = [_with_a_stop(chance, one, reply) for one, reply in zip(asked, plain, strict=True)]
    replies = serial_references(LAW, [case for _, _, case in asked], TOKENIZER.shown_bytes)
    return tuple(Good(path, body, due(case, reply)) for (path, body, case), reply in zip(asked, replies, strict=True))


Asked = tuple[str, dict[str, Any], SerialCase]


def _asked(chance: random.Random, number: int) -> Asked:
    kinds = (_ids, _text, _chat, _conversation, _tools)
    path, body, prompt = kinds[number % len(kinds)](chance)
    most = chance.choice((1, 1, 1, 2, 2, 3, 8))
    heat = chance.choice((0, 0, 0.7, 1.3))
    sampling = Sampling(number, float(heat)) if heat else Sampling()
    body |= {"max_tokens": most, "temperature": heat, "seed": number, "stream": chance.random() < 0.3}
    ends = frozenset({TOKENIZER.end_id})
    return path, body, SerialCase(prompt, most, sampling, ends)


def _with_a_stop(chance: random.Random, one: Asked, reply: SerialReply) -> Asked:
    """Every third request stops at text of its own reply, where that is text."""
    path, body, case = one
    token = chance.choice(reply.tokens)
    stop = TOKENIZER.token_bytes.of(token)
    if chance.random() < 0.6 or not stop or not stop.isascii():
        return one
    stops = [stop.decode(), "never there"]
    return path, body | {"stop": stops}, replace(case, stops=tuple(map(str.encode, stops)))


def _ids(chance: random.Random) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    prompt = [chance.randrange(500) for _ in range(chance.randrange(1, 9))]
    return TEXT, {"prompt": prompt}, tuple(prompt)


def _text(chance: random.Random) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    words = _words(chance)
    return TEXT, {"prompt": words}, tuple(words.encode())


def _chat(chance: random.Random) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    words = _words(chance)
    return CHAT, {"messages": [{"role": "user", "content": words}]}, _ids_of(USER, words, END, ASSISTANT)


def _conversation(chance: random.Random) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    first, second, third, fourth = (_words(chance) for _ in range(4))
    messages = [
        {"role": "system", "content": first},
        {"role": "user", "content": second},
        {"role": "assistant", "content": third},
        {"role": "user", "content": fourth},
    ]
    parts = (SYSTEM, first, END, USER, second, END, ASSISTANT, third, END, USER, fourth, END, ASSISTANT)
    return CHAT, {"messages": messages}, _ids_of(*parts)


def _tools(chance: random.Random) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    words, result = _words(chance), _words(chance)
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"q": 1}'}}
    messages = [
        {"role": "user", "content": words},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": result, "tool_call_id": "c1"},
    ]
    shown = [call | {"function": {"name": "look_up", "arguments": {"q": 1}}}]
    parts = [SYSTEM, json.dumps(TOOLS, sort_keys=True), END, USER, words, END]
    parts += [ASSISTANT, json.dumps(shown, sort_keys=True), END, TOOL, result, END, ASSISTANT]
    return CHAT, {"messages": messages, "tools": TOOLS}, _ids_of(*parts)


def _words(chance: random.Random) -> str:
    return " ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 4)))


def _ids_of(*parts: str) -> tuple[int, ...]:
    return tuple(_each(parts))


def _each(parts: tuple[str, ...]) -> Iterator[int]:
    for part in parts:
        special = TOKENIZER.token_id(part) if part.startswith("<|") else None
        yield from [special] if special is not None else part.encode()
