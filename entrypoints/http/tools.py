"""The tools of a chat request, in the one form templates know: `{"type": "function", "function": {...}}`.

`strict` is dropped: a call that a model makes of its own will is read, not held. Knows no dialect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tensorfold.entrypoints.http import fields
from tensorfold.entrypoints.http.fields import refuse

MAX_TOOLS = 1024
CHOICES = ("auto", "none", "required")


def read_tools(value: Any) -> list[dict[str, Any]]:
    """Tools in nested form; null is none. Raises the refusal of the first tool that is wrong."""
    tools = fields.sequence(value) or []
    if len(tools) > MAX_TOOLS:
        raise refuse(f"holds {len(tools)} tools; at most {MAX_TOOLS} are taken")
    return [_tool(tool, index) for index, tool in enumerate(tools)]


def _tool(tool: Any, index: int) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise refuse("must be an object", at=(index,))
    if tool.get("type", "function") != "function":
        raise refuse('must be "function"; no other kind of tool is served', at=(index, "type"))
    nested = tool.get("function") is not None
    function = tool["function"] if nested else {key: part for key, part in tool.items() if key != "type"}
    at = (index, "function") if nested else (index,)
    if not isinstance(function, dict):
        raise refuse("must be an object", at=at)
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise refuse("must be a non-empty string", at=(*at, "name"))
    if not isinstance(function.get("parameters"), (dict, type(None))):
        raise refuse("must be an object or null", at=(*at, "parameters"))
    kept = {key: part for key, part in function.items() if key != "strict" and part is not None}
    return {"type": "function", "function": kept}


def read_tool_choice(value: Any) -> Any:
    """`auto`, `none`, `required`, or `{"type": "function", "function": {"name": ...}}`; null is `auto`."""
    if value is None:
        return "auto"
    if isinstance(value, str):
        if value not in CHOICES:
            raise refuse(f"must be one of {', '.join(CHOICES)}, or name a function")
        return value
    if not isinstance(value, dict):
        raise refuse("must be a string, an object or null")
    if value.get("type") == "function" and isinstance(_chosen_name(value), str):
        return value
    raise refuse('must be {"type": "function", "function": {"name": ...}} when it is an object')


def check_tool_choice(choice: Any, tools: Sequence[dict[str, Any]]) -> None:
    """Refuse a choice that the tools cannot meet."""
    if choice in ("auto", "none"):
        return
    if not tools:
        raise refuse("asks for a call, but the request has no tools", at=("tool_choice",))
    name = chosen_name(choice)
    if name is not None and all(tool["function"]["name"] != name for tool in tools):
        raise refuse("names a function that is not among the tools", at=("tool_choice",))


def chosen_name(choice: Any) -> str | None:
    """The function that a choice names; None when it names none."""
    return None if isinstance(choice, str) else str(_chosen_name(choice))


def _chosen_name(choice: dict[str, Any]) -> Any:
    function = choice.get("function")
    return function.get("name") if isinstance(function, dict) else choice.get("name")
