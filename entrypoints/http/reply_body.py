"""A reply as one JSON body: waited for to its end while its client is watched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tensorfold.application.text_replies import CallDelta, ReplyDelta, ReplyDone, ReplyError
from tensorfold.entrypoints.http.envelope import Envelope, figures, final_usage
from tensorfold.entrypoints.http.errors import ended_in_error, overloaded
from tensorfold.entrypoints.http.gate import CUT
from tensorfold.entrypoints.http.outcome import Shown
from tensorfold.entrypoints.http.pump import CALLED_S, Pump, Source
from tensorfold.entrypoints.http.services import Reply
from tensorfold.entrypoints.http.watch import Watch


class ClientLeftError(Exception):
    """The client closed its connection before the reply was whole."""


@dataclass(frozen=True, slots=True)
class WholeReply:
    """All of a reply and how it ended. `calls` are what a stream would have sent, in its order."""

    text: str
    reasoning: str
    done: ReplyDone
    calls: tuple[CallDelta, ...] = ()


class _Kept:
    """Deltas of a reply that is shown only when it is whole; a pump's sink, or filled by the thread that pulls."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.texts: list[str] = []
        self.thoughts: list[str] = []
        self.called: list[CallDelta] = []

    def take(self, deltas: list[ReplyDelta]) -> bool:
        self.texts += [delta.text for delta in deltas]
        self.thoughts += [delta.reasoning for delta in deltas]
        self.called += [call for delta in deltas for call in delta.calls]
        return True

    def whole(self, done: ReplyDone) -> WholeReply:
        """The reply that these deltas and its end make."""
        self.take([ReplyDelta(done.text, done.reasoning, (), done.calls)])
        return WholeReply("".join(self.texts), "".join(self.thoughts), done, tuple(self.called))

    def calls(self) -> bool:
        return self._watch.over


def collect(reply: Reply, watch: Watch, pump: Pump | None = None) -> WholeReply:
    """Wait for a reply's end. Raises ClientLeftError, or ApiError when the reply fails or the server ends."""
    kept = _Kept(watch)
    if pump is None:
        return _pull(reply, watch.poll_s, kept, watch)
    tap = pump.attach(reply, kept)
    try:
        return _pull(tap, CALLED_S, kept, watch)
    finally:
        pump.detach(tap)


def _pull(source: Source, wait_s: float, kept: _Kept, watch: Watch) -> WholeReply:
    while not watch.gone():
        if watch.gate.over:
            raise overloaded(CUT, 5)
        event = source.next(wait_s)
        if isinstance(event, ReplyDelta):
            kept.take([event])
        elif isinstance(event, ReplyDone):
            return kept.whole(event)
        elif isinstance(event, ReplyError):
            raise ended_in_error(event.message, event.code)
    raise ClientLeftError


def chat_body(envelope: Envelope, reply: Reply, whole: WholeReply, shown: Shown) -> bytes:
    """A `chat.completion` object. A message of calls alone has a null content."""
    calls = _calls(whole)
    message: dict[str, Any] = {"role": "assistant", "content": whole.text or (None if calls else "")}
    if whole.reasoning:
        message["reasoning_content"] = whole.reasoning
    if calls:
        message["tool_calls"] = calls
    return _body(envelope, {"index": 0, "message": message}, reply, whole, shown)


def _calls(whole: WholeReply) -> list[dict[str, Any]]:
    """The calls as a client of the stream would have put them together."""
    calls: dict[int, dict[str, Any]] = {}
    for delta in whole.calls:
        if delta.name is not None:
            calls[delta.index] = {"id": delta.id, "type": "function", "function": {"name": delta.name, "arguments": ""}}
        calls[delta.index]["function"]["arguments"] += delta.arguments
    return list(calls.values())


def text_body(envelope: Envelope, reply: Reply, whole: WholeReply, shown: Shown) -> bytes:
    """A `text_completion` object."""
    return _body(envelope, {"index": 0, "text": whole.reasoning + whole.text}, reply, whole, shown)


def _body(envelope: Envelope, choice: dict[str, Any], reply: Reply, whole: WholeReply, shown: Shown) -> bytes:
    choice |= {"logprobs": None, "finish_reason": whole.done.finish_reason}
    body = envelope.head() | {
        "choices": [choice],
        "usage": final_usage(whole.done),
        "tensorfold": figures(reply, whole.done, shown.engine, reply.token_ids if shown.token_ids else None),
    }
    return json.dumps(body, separators=(",", ":")).encode()
