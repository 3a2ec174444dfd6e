"""Recognises the small extra requests that chat programs send beside a conversation, so that they can yield to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

TITLE_LIMIT = 4096
_SYSTEM = ("system", "developer")


def is_title_request(messages: Sequence[dict[str, Any]], tools: Sequence[Any]) -> bool:
    """Whether this asks for a session title: no tools, a system prompt that mentions one, less than 4 KiB of text."""
    if tools:
        return False
    room = TITLE_LIMIT
    mentioned = False
    for message in messages:
        text = _text(message.get("content"))
        room -= len(text.encode())
        if room <= 0:
            return False
        mentioned = mentioned or (message.get("role") in _SYSTEM and "title" in text.lower())
    return mentioned


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))
