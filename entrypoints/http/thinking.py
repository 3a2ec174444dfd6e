"""What a request says about thinking, as variables for the chat template.

`enable_thinking` wins over `thinking`, which wins over the effort; an effort named at the top wins over one named in
`chat_template_kwargs`. Knows no template: a template that reads none of this is given it in vain.
"""

from __future__ import annotations

from typing import Any, Final

from tensorfold.entrypoints.http import fields
from tensorfold.entrypoints.http.fields import refuse

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
RESERVED: Final = ("messages", "tools", "add_generation_prompt")


def read_effort(value: Any) -> str | None:
    """One of the seven efforts, or null."""
    if value is None:
        return None
    if value in EFFORTS and isinstance(value, str):
        return value
    raise refuse(f"must be one of {', '.join(EFFORTS)}, or null")


def read_template_arguments(value: Any) -> dict[str, Any]:
    """`chat_template_kwargs`: variables for the template, none of which may replace the conversation."""
    arguments = fields.mapping(value) or {}
    for name in RESERVED:
        if name in arguments:
            raise refuse("is set by the server; send it as a field of the request", at=(name,))
    if not isinstance(arguments.get("enable_thinking"), (bool, type(None))):
        raise refuse("must be true, false or null", at=("enable_thinking",))
    try:
        read_effort(arguments.get("reasoning_effort"))
    except ValueError:
        raise refuse(f"must be one of {', '.join(EFFORTS)}, or null", at=("reasoning_effort",)) from None
    _switch(arguments.get("thinking"))
    return arguments


def template_variables(arguments: dict[str, Any], effort: str | None) -> dict[str, Any]:
    """The variables a template is rendered with."""
    variables = {name: value for name, value in arguments.items() if name not in ("thinking", "reasoning_effort")}
    effort = effort or arguments.get("reasoning_effort")
    thinking = arguments.get("enable_thinking")
    if thinking is None:
        thinking = _switch(arguments.get("thinking"))
    if thinking is None and effort == "none":
        thinking = False
    variables.pop("enable_thinking", None)
    if thinking is not None:
        variables["enable_thinking"] = thinking
    if effort not in (None, "none"):
        variables["reasoning_effort"] = effort
    return variables


def _switch(value: Any) -> bool | None:
    kind = value.get("type") if isinstance(value, dict) else value
    if kind is None and value is None:
        return None
    if isinstance(kind, bool):
        return kind
    if kind in ("enabled", "adaptive"):
        return True
    if kind == "disabled":
        return False
    raise refuse('must be true, false, null or {"type": "enabled" or "disabled"}', at=("thinking",))
