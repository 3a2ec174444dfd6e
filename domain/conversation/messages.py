"""Chat messages as a client sent them, turned into the messages a template is given.

Pure: knows no template language and no tokenizer; what the template can take arrives as facts (`TemplateTraits`). Text
that the client sent is never dropped: what cannot be rendered is refused with the path of its field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tensorfold.domain.conversation.message_parts import MessageError, text_of
from tensorfold.domain.conversation.tool_calls import template_calls

__all__ = ["ROLES", "MessageError", "Turn", "normalise"]

ROLES = ("system", "developer", "user", "assistant", "tool")

Turn = dict[str, Any]


def normalise(
    messages: Sequence[Mapping[str, Any]],
    *,
    late_system: bool = True,
    user_runs: bool = True,
    null_content: bool = True,
) -> list[Turn]:
    """Messages for a template: plain dicts with `role`, `content` and what the role carries besides.

    Leading system and developer messages become one system message, a blank line between their texts; later ones stay
    in place, as `user` when the template loses or rejects them there (`late_system` false), joined to the user turns
    beside them when it refuses two in a row (`user_runs` false). An assistant's null content stays null beside tool
    calls where the template takes it (`null_content`), else it is the empty text. Content parts are joined without
    separators; unknown keys are left out. Raises MessageError.
    """
    if not isinstance(messages, list | tuple) or not messages:
        raise MessageError("messages", "messages must be a list of at least one message.")
    turns = [_turn(message, f"messages[{index}]", null_content) for index, message in enumerate(messages)]
    lead = next((index for index, turn in enumerate(turns) if turn["role"] != "system"), len(turns))
    later = turns[lead:] if late_system else _placed(turns[lead:], user_runs)
    return _merged_lead(turns[:lead]) + later


def _turn(message: Mapping[str, Any], path: str, null_content: bool) -> Turn:
    if not isinstance(message, Mapping):
        raise MessageError(path, f"{path} must be an object with a role and content.")
    role = _role(message, path)
    if role in ("system", "developer"):
        return {"role": "system", "content": text_of(message.get("content"), f"{path}.content")}
    if role == "assistant":
        return _assistant(message, path, null_content)
    turn: Turn = {"role": role, "content": text_of(message.get("content"), f"{path}.content")}
    for key in ("name", "tool_call_id") if role == "tool" else ("name",):
        if isinstance(message.get(key), str):
            turn[key] = message[key]
    return turn


def _role(message: Mapping[str, Any], path: str) -> str:
    role = message.get("role")
    if role == "function":
        raise MessageError(f"{path}.role", f"{path}.role is function, which is no longer offered; use tool.")
    if not isinstance(role, str) or role not in ROLES:
        raise MessageError(f"{path}.role", f"{path}.role must be one of {', '.join(ROLES)}.")
    return role


def _assistant(message: Mapping[str, Any], path: str, null_content: bool) -> Turn:
    content = message.get("content")
    turn: Turn = {"role": "assistant", "content": text_of(content, f"{path}.content")}
    reasoning = message.get("reasoning_content")
    if reasoning is None:
        reasoning = message.get("reasoning")
    if isinstance(reasoning, str):
        turn["reasoning_content"] = reasoning
    calls = template_calls(message.get("tool_calls"), f"{path}.tool_calls")
    if calls:
        turn["tool_calls"] = calls
        # Null says "no text beside the calls". A template that would print it, or trip over it, gets the empty text.
        if content is None and null_content:
            turn["content"] = None
    return turn


def _merged_lead(turns: list[Turn]) -> list[Turn]:
    if not turns:
        return []
    return [{"role": "system", "content": "\n\n".join(turn["content"] for turn in turns if turn["content"])}]


def _placed(turns: list[Turn], user_runs: bool) -> list[Turn]:
    """Late system turns as user turns; without `user_runs` each becomes one turn with the user turns beside it."""
    placed: list[Turn] = []
    after_late = False
    for turn in turns:
        late = turn["role"] == "system"
        if late:
            turn = {"role": "user", "content": turn["content"]}
        joins = (late or after_late) and not user_runs
        if joins and turn["role"] == "user" and placed and placed[-1]["role"] == "user":
            placed[-1] = placed[-1] | {"content": f"{placed[-1]['content']}\n\n{turn['content']}"}
        else:
            placed.append(turn)
        after_late = late
    return placed
