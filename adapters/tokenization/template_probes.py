"""Learns what a template takes by rendering small made-up conversations and looking for marks in the text.

Refusals by the template are answers. A probe that must be stopped at a limit is none: it ends the loading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tensorfold.adapters.tokenization.render_faults import RenderFaultError
from tensorfold.domain.conversation.template_traits import TemplateTraits

Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]] | None], str]

_MARK = "tensorfold_probe_mark"
_OTHER = "tensorfold_probe_other"
_TOOL = {
    "type": "function",
    "function": {
        "name": _MARK,
        "description": "probe",
        "parameters": {"type": "object", "properties": {"text": {"type": "string", "description": "probe"}}},
    },
}
_CALL = {"id": "call00001", "type": "function", "function": {"name": _MARK, "arguments": {"text": "probe"}}}
_RESULT = {"role": "tool", "tool_call_id": "call00001", "name": _MARK, "content": "probe"}


def learn_traits(render: Render) -> TemplateTraits:
    """Facts about the template behind `render`. Raises RenderFaultError when a probe had to be stopped."""
    return TemplateTraits(
        takes_tools=_takes_tools(render),
        late_system=_late_system(render),
        user_runs=_user_runs(render),
        null_content=_null_content(render),
    )


def _takes_tools(render: Render) -> bool:
    """Some templates list tools only in a system turn, so the probe is made without one and with one."""
    user = _turn("user", "probe")
    return any(_shows(render, turns, [_TOOL]) for turns in ([user], [_turn("system", "probe"), user]))


def _late_system(render: Render) -> bool:
    """Behind an answer and behind a question: a template that counts turns may take it in one place alone."""
    user, late = _turn("user", "probe"), _turn("system", _MARK)
    return all(_shows(render, turns) for turns in ([user, _turn("assistant", "probe"), late, user], [user, late, user]))


def _user_runs(render: Render) -> bool:
    return _shows(render, [_turn("user", _OTHER), _turn("user", _MARK)], marks=(_MARK, _OTHER))


def _null_content(render: Render) -> bool:
    """Whether null renders, and writes no more of `None` or `null` than the empty text does."""
    null = _text(render, _called(None), [_TOOL])
    empty = _text(render, _called(""), [_TOOL])
    if null is None or _MARK not in null:
        return False
    return empty is None or all(null.count(word) <= empty.count(word) for word in ("None", "null"))


def _called(content: str | None) -> list[Mapping[str, Any]]:
    return [_turn("user", "probe"), {"role": "assistant", "content": content, "tool_calls": [_CALL]}, _RESULT]


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _shows(
    render: Render,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    marks: Sequence[str] = (_MARK,),
) -> bool:
    text = _text(render, messages, tools)
    return text is not None and all(mark in text for mark in marks)


def _text(
    render: Render, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None
) -> str | None:
    try:
        return render(messages, tools)
    except RenderFaultError as fault:
        if fault.stopping:
            raise
        return None
