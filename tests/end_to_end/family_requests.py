"""Requests to a served family, and what its template must make of them, rendered here by jinja2 alone.

A chat's prompt is proved by its reply: the same ids come back for the text as a raw completion, whatever weights say.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jinja2

from tests.synthetic.templates import template_source

TEMPLATES: Mapping[str, str] = {
    "qwen3_5": "qwen",
    "qwen4_exp": "qwen",
    "nemotron_h": "nemotron",
    "glm5_next": "glm",
    "gemma4": "gemma4",
}
EFFORTS: Mapping[str, str] = {"qwen": "medium"}
"""The effort that the server asks of a template when nobody names one: `medium`, where the template knows it."""
TOWN = "{% if town is defined %}{{ town }}{% endif %}"
"""What every template is given behind its own text: a variable that only a request can fill."""
TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": "find", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
ASKED = "Say 1 2 1 2 1 2"
TOKENS = 24


@dataclass(frozen=True, slots=True)
class Got:
    """One reply; equal ones tell a client the same."""

    ids: tuple[int, ...]
    text: str
    thought: str
    finish: str
    prompt: int = field(compare=False, default=0)
    """Tokens of the prompt, where the reply says so."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A chat: fields of its body, and the variables that its template gets of them."""

    name: str
    body: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)


WISHES = (
    Wish("plain"),
    Wish("thinking off", {"chat_template_kwargs": {"enable_thinking": False}}, {"enable_thinking": False}),
    Wish("a low effort", {"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
    Wish("a variable of the template", {"chat_template_kwargs": {"town": "Lyon"}}, {"town": "Lyon"}),
    Wish("a tool", {"tools": [TOOL]}, {"tools": [TOOL]}),
)


def source(family: str) -> str:
    """The template that a family's tiny checkpoint is served with."""
    return template_source(TEMPLATES[family]) + TOWN


def rendered(family: str, wish: Wish) -> str:
    """The prompt of a wish, by its template and the family's own rule for thoughts that are off."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    given = {"messages": [{"role": "user", "content": ASKED}], "add_generation_prompt": True, "enable_thinking": True}
    template = TEMPLATES[family]
    given |= {"reasoning_effort": EFFORTS[template]} if template in EFFORTS else {}
    text = environment.from_string(source(family)).render(given | dict(wish.variables))
    if wish.variables.get("enable_thinking", True) or template != "glm":
        return text
    # This template has no switch: the server closes the thought, and asks for no effort.
    return text.replace("<|system|>Reasoning Effort: Max", "") + "</think>"


def chat(port: int, **fields: Any) -> Got:
    """A chat's reply."""
    return _ask(port, "/v1/chat/completions", {"messages": [{"role": "user", "content": ASKED}], **fields})


def complete(port: int, prompt: str, **fields: Any) -> Got:
    """A raw completion's reply."""
    return _ask(port, "/v1/completions", {"prompt": prompt, **fields})


def _ask(port: int, path: str, fields: Mapping[str, Any]) -> Got:
    body = {"model": "any", "max_tokens": TOKENS, "ignore_eos": True, "return_token_ids": True, **fields}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read().decode()
    finally:
        connection.close()
    if answer.status != 200:
        raise AssertionError(f"{answer.status} to {body}: {data[:500]}")
    if not body.get("stream"):
        return _got([json.loads(data)])
    *events, done = [line.removeprefix("data: ") for line in data.split("\n\n") if line.startswith("data: ")]
    if done != "[DONE]":
        raise AssertionError(f"a stream ends with {done[:200]}")
    return _got([json.loads(event) for event in events])


def _got(parts: list[dict[str, Any]]) -> Got:
    """One reply out of its whole body or its events."""
    text = thought = finish = ""
    ids: tuple[int, ...] = ()
    prompt = 0
    for part in parts:
        ids = tuple(part.get("tensorfold", {}).get("token_ids", ids))
        prompt = (part.get("usage") or {}).get("prompt_tokens", prompt)
        for choice in part["choices"]:
            said = choice.get("message") or choice.get("delta") or {"content": choice.get("text")}
            text += said.get("content") or ""
            thought += said.get("reasoning_content") or ""
            finish = choice["finish_reason"] or finish
    return Got(ids, text, thought, finish, prompt)
