"""Tool calls of earlier assistant turns in the form that templates read. Pure.

A template walks a call's arguments as a mapping, so text that is no JSON object is kept whole under one reserved key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from tensorfold.domain.conversation.message_parts import MessageError

RAW_ARGUMENTS = "_raw_arguments"
"""The key that holds a call's arguments when they are not a JSON object."""


def template_calls(calls: Any, path: str) -> list[dict[str, Any]]:
    """An assistant turn's calls with their arguments as mappings; null is none. Raises MessageError."""
    if calls is None:
        return []
    if not isinstance(calls, list | tuple):
        raise MessageError(path, f"{path} must be a list of tool calls or null.")
    return [_call(call, f"{path}[{index}]") for index, call in enumerate(calls)]


def parsed_arguments(arguments: Any) -> dict[str, Any]:
    """A call's arguments as a mapping: parsed from JSON text, or kept whole under RAW_ARGUMENTS; empty text is none."""
    if isinstance(arguments, Mapping):
        return dict(arguments)
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        return {}
    if not isinstance(arguments, str):
        return {RAW_ARGUMENTS: arguments}
    try:
        parsed = json.loads(arguments, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return {RAW_ARGUMENTS: arguments}
    return parsed if isinstance(parsed, dict) else {RAW_ARGUMENTS: arguments}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _call(call: Any, path: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise MessageError(path, f"{path} must be an object with a function.")
    if call.get("type", "function") not in ("function", None):
        raise MessageError(f"{path}.type", f"{path}.type must be function.")
    turned = {"type": "function", "function": _function(call.get("function"), f"{path}.function")}
    return {"id": call["id"], **turned} if isinstance(call.get("id"), str) else turned


def _function(function: Any, path: str) -> dict[str, Any]:
    if not isinstance(function, Mapping):
        raise MessageError(path, f"{path} must be an object with a name.")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise MessageError(f"{path}.name", f"{path}.name must be a non-empty string.")
    return {"name": name, "arguments": parsed_arguments(function.get("arguments"))}
