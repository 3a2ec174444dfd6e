"""A reply as server-sent events, one per round.

However it ends - whole, failed, cut by the server's end, or left by its client - the reply is cancelled and its end is
told exactly once. An error after the first byte is one well-formed event and `[DONE]`; nothing is ever just dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from tensorfold.application.text_replies import ReplyDelta, ReplyDone, ReplyError
from tensorfold.entrypoints.http.delta_writer import DeltaWriter
from tensorfold.entrypoints.http.envelope import figures, final_usage
from tensorfold.entrypoints.http.errors import OVERLOADED, ended_in_error, error_json
from tensorfold.entrypoints.http.frames import DONE, KEEP_ALIVE, ChatFrames, TextFrames
from tensorfold.entrypoints.http.gate import CUT
from tensorfold.entrypoints.http.outcome import Outcome, Shown
from tensorfold.entrypoints.http.pump import CALLED_S, Pump, Source, Tap
from tensorfold.entrypoints.http.services import Reply
from tensorfold.entrypoints.http.watch import Watch

FAULT = "The server failed while it wrote this reply; its log says why."


class ReplyStream:
    """The iterable a WSGI server writes. `close` is called by the server at the end, whatever the end was.

    With a pump the deltas are written by the pump's thread; this one sleeps until there is something else to do.
    """

    def __init__(
        self,
        reply: Reply,
        frames: ChatFrames | TextFrames,
        shown: Shown,
        watch: Watch,
        *,
        pump: Pump | None = None,
        on_end: Callable[[Outcome], None],
        on_fault: Callable[[BaseException], None],
    ) -> None:
        self._reply = reply
        self._frames = frames
        self._shown = shown
        self._watch = watch
        self._pump = pump if watch.wire is not None else None
        self._tap: Tap | None = None
        self._deltas = DeltaWriter(frames, watch, reply.prompt_tokens, shown.usage_in_every_chunk)
        self._on_end = on_end
        self._on_fault = on_fault
        self._outcome = Outcome("left")
        self._ended = False
        self._events = self._guarded()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._events)

    def close(self) -> None:
        """Free what the reply holds and tell its end; a stream that was never begun is freed too."""
        if self._ended:
            return
        self._ended = True
        self._events.close()
        self._reply.cancel()
        if self._pump is not None and self._tap is not None:
            self._tap.seize()
            self._pump.detach(self._tap)
        self._on_end(self._outcome)

    def _guarded(self) -> Generator[bytes, None, None]:
        try:
            yield from self._pull()
        except Exception as broken:
            if self._watch.gone():
                return
            self._on_fault(broken)
            yield from self._failed(FAULT, None)

    def _pull(self) -> Iterator[bytes]:
        watch, deltas = self._watch, self._deltas
        yield self._frames.opening()
        deltas.sent = watch.clock()
        source, wait_s = self._source()
        while not watch.gone():
            if watch.gate.over:
                yield from self._failed(CUT, OVERLOADED)
                return
            event = source.next(wait_s)
            if isinstance(event, ReplyDelta):
                if data := deltas.event(event):
                    yield data
                    deltas.sent = watch.clock()
            elif isinstance(event, ReplyDone):
                yield from self._whole(event)
                return
            elif isinstance(event, ReplyError):
                yield from self._failed(event.message, event.code)
                return
            if deltas.silent:
                yield KEEP_ALIVE
                deltas.sent = watch.clock()

    def _source(self) -> tuple[Source, float]:
        """Where events come from and how long to wait for one: the head is written, so the pump may write too."""
        if self._pump is None:
            return self._reply, self._watch.poll_s
        self._tap = self._pump.attach(self._reply, self._deltas)
        return self._tap, CALLED_S

    def _whole(self, done: ReplyDone) -> Iterator[bytes]:
        shown, frames = self._shown, self._frames
        total = final_usage(done)
        tail = ReplyDelta(done.text, done.reasoning, (), done.calls)
        if data := self._deltas.shown(tail, total if shown.usage_in_every_chunk else None):
            yield data
        ids = self._reply.token_ids if shown.token_ids else None
        block = figures(self._reply, done, shown.engine, ids)
        elsewhere = shown.usage_last and not shown.usage_in_every_chunk
        yield frames.finish(done.finish_reason, block, None if elsewhere else total)
        if shown.usage_last:
            yield frames.usage(total)
        self._outcome = Outcome("done", done)
        yield DONE

    def _failed(self, message: str, code: str | None) -> Iterator[bytes]:
        if self._tap is not None:
            # Nothing may follow the error: the pump stops before it is written.
            self._tap.seize()
        error = ended_in_error(message, code)
        self._outcome = Outcome("cut" if message == CUT else "failed")
        yield b"data: " + error_json(message, error.kind, None, code) + b"\n\n"
        yield DONE
