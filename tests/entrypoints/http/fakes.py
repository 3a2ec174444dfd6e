"""Services that do as a test says: replies whose events a test pushes, and a chat service that remembers its orders."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence

from tensorfold.application.errors import ContextExceededError, RequestError
from tensorfold.application.health import Health
from tensorfold.application.orders import ChatOrder, CompletionOrder
from tensorfold.application.replies import ReplyStats, SourceCount, token_sha
from tensorfold.application.text_replies import ReplyDelta, ReplyDone, ReplyError, ReplyEvent
from tensorfold.domain.conversation.message_parts import MessageError
from tensorfold.domain.conversation.messages import normalise
from tensorfold.domain.conversation.reply_text import ReplyText
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.stop_strings import StopMatcher

Order = ChatOrder | CompletionOrder
_NUMBERS = itertools.count(1)


class FakeReply:
    """A reply that says what is pushed into it; `cancelled` is set when its reader lets go of it."""

    def __init__(self, prompt_tokens: int = 3, *, drafts: bool = True, greedy: bool = True) -> None:
        self.id = f"{next(_NUMBERS):024x}"
        self.created = 1_700_000_000
        self.prompt_tokens = prompt_tokens
        self.drafts = drafts
        self.greedy = greedy
        self.cancelled = threading.Event()
        self.cancels = 0
        self.pulled = threading.Event()
        self._ids: list[int] = []
        self._heard: Callable[[], None] | None = None
        self._events: queue.SimpleQueue[ReplyEvent | Exception] = queue.SimpleQueue()

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(self._ids)

    def push(self, event: ReplyEvent | Exception) -> None:
        self._events.put(event)
        if self._heard is not None:
            self._heard()

    def listen(self, heard: Callable[[], None]) -> None:
        self._heard = heard
        heard()

    def say(self, text: str, ids: Sequence[int] = (7,), reasoning: str = "") -> None:
        self.push(ReplyDelta(text, reasoning, tuple(ids)))

    def end(self, reason: str = "stop", *, text: str = "", ids: Sequence[int] | None = None, rounds: int = 1) -> None:
        self.push(ReplyDone(reason, self.stats(len(ids or (7,)), rounds), token_sha(tuple(ids or (7,))), text))

    def fail(self, message: str, code: str | None = None) -> None:
        self.push(ReplyError(message, code))

    def stats(self, completion: int, rounds: int) -> ReplyStats:
        return ReplyStats(
            prompt_tokens=self.prompt_tokens,
            completion_tokens=completion,
            cached_tokens=1,
            queue_s=0.25,
            prefill_s=0.5,
            ttft_s=0.75,
            decode_s=2.0,
            rounds=rounds,
            sources=(SourceCount("copy", 4, 3),),
        )

    def next(self, timeout: float) -> ReplyEvent | None:
        self.pulled.set()
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        if isinstance(event, ReplyDelta):
            self._ids += event.token_ids
        return event

    def cancel(self) -> None:
        self.cancels += 1
        self.cancelled.set()


def hello(reply: FakeReply, order: Order) -> None:
    """The reply of a test that does not care what is said."""
    reply.say("Hello", (1, 2))
    reply.say(" world", (3,))
    reply.end("stop", ids=(1, 2, 3, 0), rounds=2)


def silent(reply: FakeReply, order: Order) -> None:
    """A reply of which nothing is known yet; the test pushes its events itself."""


class FakeChat:
    """Answers every order with a new reply that `script` fills. Messages are read as the real service reads them."""

    def __init__(
        self,
        script: Callable[[FakeReply, Order], None] = hello,
        *,
        names: tuple[str, ...] = ("org/tiny", "tiny"),
        context: int = 8192,
        refusal: Exception | None = None,
    ) -> None:
        self.model_names = names
        self.context = context
        self.orders: list[Order] = []
        self.replies: list[FakeReply] = []
        self._script = script
        self._refusal = refusal

    def chat(self, order: ChatOrder) -> FakeReply:
        try:
            turns = normalise(order.messages)
        except MessageError as refusal:
            raise RequestError(refusal.message, param=refusal.path) from None
        return self._start(order, sum(len(turn["content"] or "") for turn in turns), "messages")

    def complete(self, order: CompletionOrder) -> FakeReply:
        return self._start(order, len(order.prompt), "prompt")

    def _start(self, order: Order, size: int, param: str) -> FakeReply:
        if self._refusal is not None:
            raise self._refusal
        if size + (order.options.max_tokens or 1) > self.context:
            raise ContextExceededError(
                prompt=size,
                reply=order.options.max_tokens,
                limit=self.context,
                param=param,
                reply_param=order.options.limit_field,
            )
        reply = FakeReply(size, drafts=order.options.draft, greedy=not order.options.temperature)
        self.orders.append(order)
        self.replies.append(reply)
        self._script(reply, order)
        return reply

    @property
    def order(self) -> Order:
        """The last order."""
        return self.orders[-1]


def spelled(*tokens: bytes, cut: int = 1) -> Callable[[FakeReply, Order], None]:
    """A script of one token per bytes value, `cut` tokens to a round, ended by a stop, the limit or an end token.

    Its text is made as the real service makes it, from bytes.
    """

    def script(reply: FakeReply, order: Order) -> None:
        stops = tuple(stop.encode() for stop in order.options.stops)
        text = ReplyText(TokenBytes(tokens), stops)
        matcher = StopMatcher(stops)
        state, limit = 0, order.options.max_tokens or len(tokens) + 1
        landed: list[int] = []
        waiting: list[int] = []
        reason = "stop"
        stopped = False
        for token, data in enumerate(tokens):
            waiting.append(token)
            landed.append(token)
            if stops:
                state, match = matcher.step(state, data)
                stopped = match is not None
            if len(waiting) == cut or stopped:
                reply.say(text.feed(waiting), waiting)
                waiting = []
            if stopped or len(landed) == limit:
                reason = "stop" if stopped else "length"
                break
        if waiting:
            reply.say(text.feed(waiting), waiting)
        reply.end(reason, text=text.finish(stopped), ids=landed)

    return script


class FakeHealth:
    """Health as a test sets it."""

    def __init__(self) -> None:
        self.report_now = Health("ok", True, {"requests_running": 2, "streams": {"decoding": 1, "max": 4}})

    def report(self) -> Health:
        return self.report_now
