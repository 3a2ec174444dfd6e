"""Turns the deltas of one streamed reply into events, in whichever thread they are taken."""

from __future__ import annotations

from typing import Any

from tensorfold.application.text_replies import ReplyDelta
from tensorfold.entrypoints.http.envelope import usage
from tensorfold.entrypoints.http.frames import ChatFrames, TextFrames
from tensorfold.entrypoints.http.watch import Watch

SLOW_BYTES = 256 * 1024


class DeltaWriter:
    """Counts what landed and when bytes last went out. As a pump's sink it writes to the client's wire itself."""

    def __init__(self, frames: ChatFrames | TextFrames, watch: Watch, prompt_tokens: int, counted: bool) -> None:
        self.sent = watch.clock()
        self._frames = frames
        self._watch = watch
        self._prompt_tokens = prompt_tokens
        self._counted = counted
        self._landed = 0

    def event(self, delta: ReplyDelta) -> bytes:
        """The event of a round; empty when the round shows nothing."""
        self._landed += len(delta.token_ids)
        if not delta.text and not delta.reasoning and not delta.calls:
            return b""
        return self.shown(delta, usage(self._prompt_tokens, self._landed) if self._counted else None)

    def shown(self, delta: ReplyDelta, so_far: dict[str, Any] | None) -> bytes:
        """Events of what a delta shows: the reasoning before the answer, the answer before its calls."""
        frames = self._frames
        events = [frames.reasoning(delta.reasoning, so_far)] if delta.reasoning else []
        if delta.text:
            events.append(frames.content(delta.text, so_far))
        events += [frames.call(call, so_far) for call in delta.calls]
        return b"".join(events)

    def take(self, deltas: list[ReplyDelta]) -> bool:
        """Write events at once; False, and nothing written, when the client reads too slowly for that."""
        wire = self._watch.wire
        if wire is None or wire.backlog() > SLOW_BYTES:
            return False
        if data := b"".join(map(self.event, deltas)):
            wire.write(data)
            self.sent = self._watch.clock()
        return True

    def calls(self) -> bool:
        """Whether the client has left, the server's end has come, or a comment is due."""
        return self._watch.over or self.silent

    @property
    def silent(self) -> bool:
        """Whether nothing went out for so long that a comment is due."""
        return self._watch.clock() - self.sent >= self._watch.keepalive_s
