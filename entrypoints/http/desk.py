"""The life of one reply over HTTP, the same for every route that generates: a place, a reply, a stream or a body.

Whatever happens between, the place is given back once, the reply is cancelled and its end is told once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import falcon

from tensorfold.entrypoints.http.access_log import AccessLogger
from tensorfold.entrypoints.http.bodies import read_object
from tensorfold.entrypoints.http.envelope import Envelope
from tensorfold.entrypoints.http.error_handlers import FaultLog, shown
from tensorfold.entrypoints.http.frames import ChatFrames, TextFrames
from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.generation_fields import GenerationFields
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.outcome import Outcome, Shown
from tensorfold.entrypoints.http.pump import Pump
from tensorfold.entrypoints.http.reply_body import ClientLeftError, WholeReply, collect
from tensorfold.entrypoints.http.reply_stream import ReplyStream
from tensorfold.entrypoints.http.services import ChatService, Reply, Services
from tensorfold.entrypoints.http.watch import Watch, watch_client

CLIENT_LEFT = "499 Client Closed Request"
STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

Start = Callable[[ChatService], Reply]


@dataclass(frozen=True, slots=True)
class Shape:
    """How a route writes a reply: the prefix of its id, its objects' names, its frames and its body."""

    prefix: str
    whole: str
    chunk: str
    frames: type[ChatFrames] | type[TextFrames]
    body: Callable[[Envelope, Reply, WholeReply, Shown], bytes]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A reply on its way, what was asked for, and where it goes."""

    req: falcon.Request
    resp: falcon.Response
    request: GenerationFields
    reply: Reply
    shape: Shape
    watch: Watch


@dataclass(frozen=True, slots=True)
class Desk:
    """What every route that generates needs."""

    services: Services
    gate: Gate
    limits: HttpLimits
    access: AccessLogger
    log_fault: FaultLog
    pump: Pump | None = None
    taken: Callable[[Mapping[str, Any]], None] = lambda body: None

    def serve(
        self,
        req: falcon.Request,
        resp: falcon.Response,
        read: Callable[[Mapping[str, Any], str], tuple[GenerationFields, Start]],
        shape: Shape,
    ) -> None:
        """Read a request, start its reply and write it as asked. Refusals are raised before the first byte."""
        chat = self.services.chat
        watch = watch_client(req, self.gate, self.limits)
        self.gate.enter()
        try:
            body = read_object(req, self.limits.body_bytes)
            request, start = read(body, req.context.label)
            if watch.gone():
                raise ClientLeftError
            reply = start(chat)
        except ClientLeftError:
            self._left(req, resp)
            return
        except BaseException:
            self.gate.leave()
            raise
        if not request.in_background:
            self.taken(body)
        begun = _Begun(req, resp, request, reply, shape, watch)
        if request.stream:
            self._stream(begun)
        else:
            self._whole(begun)

    def _stream(self, begun: _Begun) -> None:
        req, resp, envelope = begun.req, begun.resp, self._envelope(begun, begun.shape.chunk)

        def on_end(outcome: Outcome) -> None:
            self.gate.leave(disconnected=outcome.ending == "left")
            self.access.streamed(req, replace(outcome, reply=envelope.id))

        def on_fault(broken: BaseException) -> None:
            self.log_fault(f"{req.method} {shown(req.path)}", broken)

        stream = ReplyStream(
            begun.reply,
            begun.shape.frames(envelope),
            self._shown(begun.request),
            begun.watch,
            pump=self.pump,
            on_end=on_end,
            on_fault=on_fault,
        )
        resp.content_type = "text/event-stream; charset=utf-8"
        resp.set_headers(STREAM_HEADERS)
        resp.stream = stream

    def _whole(self, begun: _Begun) -> None:
        req, resp, reply, envelope = begun.req, begun.resp, begun.reply, self._envelope(begun, begun.shape.whole)
        try:
            whole = collect(reply, begun.watch, self.pump)
        except ClientLeftError:
            self._left(req, resp, envelope.id)
            return
        except BaseException:
            self.gate.leave()
            raise
        finally:
            reply.cancel()
        self.gate.leave()
        req.context.outcome = Outcome("done", whole.done, envelope.id)
        resp.data = begun.shape.body(envelope, reply, whole, self._shown(begun.request))

    def _left(self, req: falcon.Request, resp: falcon.Response, reply: str = "") -> None:
        self.gate.leave(disconnected=True)
        req.context.outcome = Outcome("left", reply=reply)
        resp.status = CLIENT_LEFT
        resp.data = b""

    def _envelope(self, begun: _Begun, kind: str) -> Envelope:
        facts, reply = self.services.facts, begun.reply
        name = facts.shown(begun.request.model)
        return Envelope(begun.shape.prefix + reply.id, kind, reply.created, name, facts.fingerprint)

    def _shown(self, request: GenerationFields) -> Shown:
        return Shown(
            engine=self.services.facts.engine,
            usage_last=request.include_usage,
            usage_in_every_chunk=request.usage_in_every_chunk,
            token_ids=bool(request.return_token_ids),
        )
