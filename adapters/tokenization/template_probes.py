"""Learns what a template takes by rendering small made-up conversations and looking for marks in the text.

Refusals by the template are answers. A probe that must be stopped at a limit is none: it ends the loading.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tensorfold.adapters.tokenization.render_faults import RenderFaultError
from tensorfold.domain.conversation.dialects import recognised
from tensorfold.domain.conversation.efforts import LEVELS
from tensorfold.domain.conversation.reply_form import thought_close
from tensorfold.domain.conversation.template_traits import TemplateTraits

Messages = Sequence[Mapping[str, Any]]
Render = Callable[[Messages, Messages | None, Mapping[str, Any]], str]

_MARK = "tensorfold_probe_mark"
_OTHER = "tensorfold_probe_other"
EFFORT = "reasoning_effort"
_DIGITS = re.compile(r"\d+")
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


def learn_traits(render: Render, sources: Collection[str] = ()) -> TemplateTraits:
    """Facts about the template behind `render`. Raises RenderFaultError when a probe had to be stopped.

    `sources` are the template's: no probe is spent on a variable that they do not name, and the marks of a thought are
    looked for there.
    """
    return TemplateTraits(
        takes_tools=_takes_tools(render),
        late_system=_late_system(render),
        user_runs=_user_runs(render),
        null_content=_null_content(render),
        efforts=_efforts(render) if any(EFFORT in source for source in sources) else (),
        tool_calls=_tool_calls(render),
        thought_close=thought_close(sources),
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


def _tool_calls(render: Render) -> str:
    return recognised(_text(render, _called(""), [_TOOL]) or "", _MARK)


def _efforts(render: Render) -> tuple[str, ...]:
    """Levels that are taken, and not as any odd word is, or that an odd word is taken for.

    Digits are not compared: they may be those of a clock.
    """

    def shown(effort: str) -> str | None:
        text = _text(render, [_turn("user", "probe")], variables={EFFORT: effort, "enable_thinking": True})
        return None if text is None else _DIGITS.sub("", text)

    odd = shown(_MARK)
    texts = {level: shown(level) for level in LEVELS}
    own = {level: text for level, text in texts.items() if text is not None and text != odd}
    return tuple(level for level in LEVELS if level in own or _falls_back(level, odd, own))


def _falls_back(level: str, odd: str | None, own: Mapping[str, str]) -> bool:
    """Whether the text of an odd word names this level, and no other level's text does."""
    return (
        bool(own) and odd is not None and _names(odd, level) and not any(_names(text, level) for text in own.values())
    )


def _names(text: str, level: str) -> bool:
    return re.search(rf"\b{level}\b", text, re.IGNORECASE) is not None


def _called(content: str | None) -> list[Mapping[str, Any]]:
    return [_turn("user", "probe"), {"role": "assistant", "content": content, "tool_calls": [_CALL]}, _RESULT]


def _turn(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def _shows(
    render: Render,
    messages: Messages,
    tools: Messages | None = None,
    marks: Sequence[str] = (_MARK,),
) -> bool:
    text = _text(render, messages, tools)
    return text is not None and all(mark in text for mark in marks)


def _text(
    render: Render, messages: Messages, tools: Messages | None = None, variables: Mapping[str, Any] | None = None
) -> str | None:
    try:
        return render(messages, tools, variables or {})
    except RenderFaultError as fault:
        if fault.stopping:
            raise
        return None
