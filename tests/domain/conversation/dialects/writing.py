"""Writes calls as the templates of each dialect do, from the arguments that they hold."""

from __future__ import annotations

import json
from typing import Any

from tests.domain.conversation.reading import GEMMA, GLM, JSON, QWEN

MARK = '<|"|>'


def written(dialect: str, name: str, arguments: dict[str, Any]) -> str:
    """One call."""
    return {QWEN: _qwen, GLM: _glm, GEMMA: _gemma, JSON: _json}[dialect](name, arguments)


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _qwen(name: str, arguments: dict[str, Any]) -> str:
    body = "".join(f"<parameter={key}>\n{_plain(value)}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def _glm(name: str, arguments: dict[str, Any]) -> str:
    pairs = (f"<arg_key>{key}</arg_key><arg_value>{_plain(value)}</arg_value>" for key, value in arguments.items())
    return f"<tool_call>{name}{''.join(pairs)}</tool_call>"


def _gemma(name: str, arguments: dict[str, Any]) -> str:
    return f"<|tool_call>call:{name}{_gemma_value(dict(sorted(arguments.items())))}<tool_call|>"


def _gemma_value(value: Any) -> str:
    if isinstance(value, str):
        return MARK + value + MARK
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_gemma_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma_value, value)) + "]"
    return json.dumps(value)


def _json(name: str, arguments: dict[str, Any]) -> str:
    call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{call}\n</tool_call>"
