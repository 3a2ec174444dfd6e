"""Prompts of a benchmark: conversations with their sampling, read from objects, and the digest that names a set.

The digest covers everything that can change a reply's text or length beside the model, and nothing of where the
prompts came from: results whose digests are equal were measured over the same requests.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.application.ports.checkpoints import RefusedError

MOST_PROMPTS = 64
MOST_MESSAGES = 64
MOST_TEXT = 1 << 20
MOST_NAME = 40
_ROLES = ("system", "user", "assistant")
_KEYS = ("name", "messages", "temperature", "top_p", "top_k", "seed")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A conversation that asks for a reply. `messages` are (role, text) pairs; `temperature` 0 is greedy.

    `seed` None is the server's own choice: derived from the prompt, where the server does that.
    """

    name: str
    messages: tuple[tuple[str, str], ...]
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None

    @property
    def greedy(self) -> bool:
        """Whether nothing is drawn by chance."""
        return self.temperature <= 0.0

    def turns(self) -> list[dict[str, str]]:
        """The conversation as requests carry it."""
        return [{"role": role, "content": text} for role, text in self.messages]


@dataclass(frozen=True, slots=True)
class PromptSet:
    """At least one prompt, all of different names. `source` says where they are from: `public`, or `a file`."""

    prompts: tuple[Prompt, ...]
    source: str

    @property
    def digest(self) -> str:
        """`sha256:` and 64 hexadecimal digits over every field of every prompt, in order."""
        lines = [[p.name, list(map(list, p.messages)), p.temperature, p.top_p, p.top_k, p.seed] for p in self.prompts]
        text = json.dumps(lines, ensure_ascii=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def read_prompts(lines: Sequence[tuple[str, Mapping[str, Any]]], source: str, name: str) -> PromptSet:
    """The set of (place, object) lines; `name` is what they were read from. Raises RefusedError."""
    if not lines:
        raise RefusedError(f"{name} holds no prompt; write one JSON object a line, with name and messages.")
    if len(lines) > MOST_PROMPTS:
        raise RefusedError(f"{name} holds {len(lines)} prompts, more than the {MOST_PROMPTS} that are measured.")
    prompts: dict[str, Prompt] = {}
    for place, stated in lines:
        prompt = _prompt(stated, place)
        if prompt.name in prompts:
            raise RefusedError(f"{place} is named {prompt.name!r} like an earlier prompt; give each its own name.")
        prompts[prompt.name] = prompt
    return PromptSet(tuple(prompts.values()), source)


def _prompt(stated: Mapping[str, Any], place: str) -> Prompt:
    unknown = sorted(set(stated) - set(_KEYS))
    if unknown:
        raise RefusedError(f"{place} has the key {unknown[0][:MOST_NAME]!r}; a prompt's keys are {', '.join(_KEYS)}.")
    name = stated.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME or not name.isprintable() or not name.strip():
        raise RefusedError(f"{place} needs a name of 1 to {MOST_NAME} printable characters.")
    return Prompt(
        name,
        _messages(stated.get("messages"), place),
        temperature=_number(stated, "temperature", 0.0, 100.0, 0.0, place),
        top_p=_number(stated, "top_p", 1e-6, 1.0, 1.0, place),
        top_k=_whole(stated, "top_k", 0, 1 << 31, place) or 0,
        seed=_whole(stated, "seed", 0, 2**63 - 1, place),
    )


def _messages(stated: Any, place: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(stated, list) or not 1 <= len(stated) <= MOST_MESSAGES:
        raise RefusedError(f"{place} needs messages, a list of 1 to {MOST_MESSAGES} objects with role and content.")
    messages: list[tuple[str, str]] = []
    for message in stated:
        role, text = (message.get("role"), message.get("content")) if isinstance(message, dict) else (None, None)
        if role not in _ROLES or not isinstance(text, str) or not text or set(message) != {"role", "content"}:
            raise RefusedError(
                f"{place} has a message that is not a role of {', '.join(_ROLES)} and a content that is text."
            )
        messages.append((role, text))
    length = sum(len(text) for _, text in messages)
    if length > MOST_TEXT:
        raise RefusedError(f"{place} has {length} characters, more than the {MOST_TEXT} of a prompt.")
    if any("\ud800" <= character <= "\udfff" for _, text in messages for character in text):
        raise RefusedError(f"{place} has half a surrogate pair in its text, which no encoding of it can carry.")
    return tuple(messages)


def _number(stated: Mapping[str, Any], key: str, least: float, most: float, otherwise: float, place: str) -> float:
    value = stated.get(key, otherwise)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RefusedError(f"{place} has a {key} that is no number.")
    if not least <= value <= most:
        raise RefusedError(f"{place} has the {key} {value}, which is not from {least:g} to {most:g}.")
    return float(value)


def _whole(stated: Mapping[str, Any], key: str, least: int, most: int, place: str) -> int | None:
    value = stated.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise RefusedError(f"{place} has a {key} that is no whole number from {least} to {most}.")
    return value
