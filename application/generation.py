"""Submitting a request, reading its events, cancelling it: the side of a request that other threads see.

A generation's events travel through one queue written by the engine thread; the engine never waits for a reader.
"""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable
from dataclasses import replace

from tensorfold.application.errors import ContextExceededError
from tensorfold.application.replies import Event, GenerationRequest
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.sources import DraftSource
from tensorfold.domain.gates.gate import Gate
from tensorfold.domain.gates.stop_strings import StopStrings
from tensorfold.domain.gates.thinking_budget import ThinkingBudget
from tensorfold.domain.streams import Stream

_NUMBERS = itertools.count(1)


class Generation:
    """One submitted request. `next` is for one reader; `cancel` may be called from any thread, any number of times.

    `source` is a draft source of its own, beside the usual ones; `mark` is the record's when it was submitted.
    """

    __slots__ = ("_events", "_heard", "cancelled", "id", "mark", "request", "source", "submitted", "wake")

    def __init__(
        self,
        request: GenerationRequest,
        submitted: float,
        wake: Callable[[], None],
        source: DraftSource | None = None,
        mark: int = 0,
    ) -> None:
        self.id = f"{next(_NUMBERS):x}"
        self.request = request
        self.submitted = submitted
        self.cancelled = False
        self.wake = wake
        self.source = source
        self.mark = mark
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._heard: Callable[[], None] | None = None

    def deliver(self, event: Event) -> None:
        """Hand an event to the reader; called by the engine thread."""
        self._events.put(event)
        if self._heard is not None:
            self._heard()

    def listen(self, heard: Callable[[], None]) -> None:
        """Call `heard` after every event from now on, and once now; it runs on the engine's thread and must not wait.

        A reader of many replies needs no thread per reply that way: it reads with a timeout of 0 what was heard.
        """
        self._heard = heard
        heard()

    def next(self, timeout: float) -> Event | None:
        """The next event, or None when `timeout` seconds brought none. Nothing follows the end of a reply."""
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def cancel(self) -> None:
        """Ask for the end: a waiting request never starts, a running one ends at its next round or slice."""
        if not self.cancelled:
            self.cancelled = True
            self.wake()


class StreamFactory:
    """Makes the domain's stream of a request: its room, end tokens and gates."""

    def __init__(self, *, context: int, max_tokens: int, stop_ids: frozenset[int], token_bytes: TokenBytes) -> None:
        self.context = context
        self.max_tokens = max_tokens
        self.stop_ids = stop_ids
        self._token_bytes = token_bytes

    def check(self, request: GenerationRequest) -> None:
        """Refuse what cannot fit before anything is queued. Raises ContextExceededError."""
        prompt, reply = len(request.prompt), request.max_tokens
        if prompt + (reply or 1) > self.context:
            raise ContextExceededError(
                prompt=prompt, reply=reply, limit=self.context, param=request.param, reply_param=request.limit_param
            )

    def reply_limit(self, request: GenerationRequest) -> int:
        """The explicit limit, or the default capped by the room the prompt leaves."""
        if request.max_tokens is not None:
            return request.max_tokens
        return min(self.max_tokens, self.context - len(request.prompt))

    def stream(self, request: GenerationRequest) -> Stream:
        """A stream at its start."""
        gates: list[Gate] = []
        if request.stops:
            gates.append(StopStrings(self.shown_bytes(request), request.stops, request.splitter()))
        thoughts = request.splitter()
        if request.thinking_budget and request.thought_close and thoughts is not None:
            shown = self.shown_bytes(request)
            gates.append(ThinkingBudget(shown, thoughts, request.thinking_budget, request.thought_close))
        return Stream(
            request.prompt,
            max_tokens=self.reply_limit(request),
            sampling=request.sampling,
            stop_ids=self._ends(request),
            gates=gates,
            drafts=request.draft,
            constraint=None if request.constraint is None else request.constraint.copy(),
        )

    def shown_bytes(self, request: GenerationRequest) -> TokenBytes:
        """The bytes a reply shows: an end token counts as a token of the reply, its text is not part of it.

        Special ids that the request calls marks are text.
        """
        known = self._token_bytes.special
        special = (known - request.marks) | self._ends(request)
        return self._token_bytes if special == known else replace(self._token_bytes, special=special)

    def _ends(self, request: GenerationRequest) -> frozenset[int]:
        if request.ignore_eos:
            return frozenset()
        return self.stop_ids if request.stop_ids is None else request.stop_ids
