"""Server-sent events of a reply, built from bytes prepared once per reply.

A delta costs one JSON string and two concatenations. All JSON is ASCII: readers that split lines at U+2028 and its like
see none of them. Every event is one `bytes` ending in a blank line.
"""

from __future__ import annotations

import json
from typing import Any

from tensorfold.application.text_replies import CallDelta
from tensorfold.entrypoints.http.envelope import Envelope

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
_string = json.JSONEncoder(ensure_ascii=True).encode
_MARK = "\0"


def dump(value: Any) -> str:
    """Compact ASCII JSON."""
    return json.dumps(value, separators=(",", ":"))


def event(value: Any) -> bytes:
    """One event with a JSON value."""
    return f"data: {dump(value)}\n\n".encode()


class Frames:
    """Events of one reply. A subclass says what a choice looks like."""

    def __init__(self, envelope: Envelope) -> None:
        self._head = envelope.head()
        self._content = self._around(self._choice(content=_MARK))

    def opening(self) -> bytes:
        """The first event, sent before anything is known of the reply."""
        raise NotImplementedError

    def _choice(self, *, content: str | None = None, finish: str | None = None) -> dict[str, Any]:
        raise NotImplementedError

    def content(self, text: str, usage: dict[str, Any] | None = None) -> bytes:
        """A piece of the answer; `usage` rides along for clients that asked for it in every chunk."""
        return self._filled(self._content, text, usage)

    def finish(self, reason: str, figures: dict[str, Any], usage: dict[str, Any] | None) -> bytes:
        """The event that ends the choice."""
        chunk = self._head | {"choices": [self._choice(finish=reason)], "tensorfold": figures}
        return event(chunk if usage is None else chunk | {"usage": usage})

    def usage(self, usage: dict[str, Any]) -> bytes:
        """The event after the finish for clients that asked for the usage."""
        return event(self._head | {"choices": [], "usage": usage})

    def _around(self, choice: dict[str, Any]) -> tuple[str, str]:
        """The text before and after the one string that changes; the last brace is left to `_filled`."""
        before, after = event(self._head | {"choices": [choice]}).decode().split(_string(_MARK))
        return before, after.removesuffix("}\n\n")

    def _filled(self, around: tuple[str, str], text: str, usage: dict[str, Any] | None) -> bytes:
        before, after = around
        if usage is None:
            return f"{before}{_string(text)}{after}}}\n\n".encode()
        return f'{before}{_string(text)}{after},"usage":{dump(usage)}}}\n\n'.encode()


class ChatFrames(Frames):
    """Chunks of `chat.completion.chunk`."""

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._thought = self._around(_chat_choice({"reasoning_content": _MARK}))

    def opening(self) -> bytes:
        """The role, with an empty content: some clients fail on a first delta without one."""
        return event(self._head | {"choices": [_chat_choice({"role": "assistant", "content": ""})]})

    def reasoning(self, text: str, usage: dict[str, Any] | None = None) -> bytes:
        """A piece of the reasoning."""
        return self._filled(self._thought, text, usage)

    def call(self, delta: CallDelta, usage: dict[str, Any] | None = None) -> bytes:
        """A tool call's begin, with its id and whole name, or a piece of its arguments."""
        chunk = self._head | {"choices": [_chat_choice({"tool_calls": [_call(delta)]})]}
        return event(chunk if usage is None else chunk | {"usage": usage})

    def _choice(self, *, content: str | None = None, finish: str | None = None) -> dict[str, Any]:
        return _chat_choice({} if content is None else {"content": content}, finish)


class TextFrames(Frames):
    """Chunks of `text_completion`. A raw completion has no reasoning; there it would be text like any other."""

    def opening(self) -> bytes:
        """A comment: it opens the response, and text completions have no first chunk of their own."""
        return KEEP_ALIVE

    def reasoning(self, text: str, usage: dict[str, Any] | None = None) -> bytes:
        """Reasoning of a conversation answered in the text shape."""
        return self.content(text, usage)

    def call(self, delta: CallDelta, usage: dict[str, Any] | None = None) -> bytes:
        """Never asked for: a conversation answered in the text shape has its calls as text."""
        raise NotImplementedError

    def _choice(self, *, content: str | None = None, finish: str | None = None) -> dict[str, Any]:
        return {"index": 0, "text": content or "", "logprobs": None, "finish_reason": finish}


def _chat_choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _call(delta: CallDelta) -> dict[str, Any]:
    if delta.name is None:
        return {"index": delta.index, "function": {"arguments": delta.arguments}}
    function = {"name": delta.name, "arguments": delta.arguments}
    return {"index": delta.index, "id": delta.id, "type": "function", "function": function}
