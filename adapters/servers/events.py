"""Server-sent events of a streamed reply: lines in, text and usage out. The server is hostile, so all is bounded.

Knows no socket and no clock; whoever reads takes the time of each line.
"""

from __future__ import annotations

import json
from typing import Any

MOST_TEXT = 16 << 20
_MOST_TOKENS = 1 << 31
_TEXTS = ("content", "reasoning_content", "reasoning")


class EventFaultError(Exception):
    """What the server sent is no streamed reply; `message` completes "the server ..."."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ReplyEvents:
    """The events of one reply, taken line by line."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._length = 0
        self.pieces = 0
        self.tokens: int | None = None
        self.finished = False

    @property
    def text(self) -> str:
        """The reply so far, reasoning included."""
        return "".join(self._texts)

    def take(self, line: bytes) -> bool:
        """Take one line, its end left out; whether it brought text. Raises EventFaultError."""
        if not line.startswith(b"data:"):
            return False
        data = line[5:].strip()
        if data == b"[DONE]":
            self.finished = True
            return False
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            raise EventFaultError("sent an event that is not JSON") from None
        if not isinstance(event, dict):
            raise EventFaultError("sent an event that is no object")
        if event.get("error"):
            raise EventFaultError("ended a reply with an error")
        self._count(event.get("usage"))
        return self._add(event.get("choices"))

    def _count(self, usage: Any) -> None:
        tokens = usage.get("completion_tokens") if isinstance(usage, dict) else None
        if isinstance(tokens, int) and not isinstance(tokens, bool) and 0 < tokens <= _MOST_TOKENS:
            self.tokens = tokens

    def _add(self, choices: Any) -> bool:
        choice = choices[0] if isinstance(choices, list) and choices else None
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            return False
        new = "".join(part for name in _TEXTS if isinstance(part := delta.get(name), str))
        if not new:
            return False
        self._length += len(new)
        if self._length > MOST_TEXT:
            raise EventFaultError(f"sent a reply of more than {MOST_TEXT} characters")
        self._texts.append(new)
        self.pieces += 1
        return True
