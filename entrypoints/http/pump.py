"""One thread that takes the deltas of every running reply, so that a round of 64 streams wakes one thread and not 64.

The thread that serves a request sleeps meanwhile. It is handed what it must do itself: the reply's end, an error, and
every event once its client reads too slowly for a thread that others share. Knows no HTTP: a sink takes the deltas.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from tensorfold.application.text_replies import ReplyDelta, ReplyEvent
from tensorfold.entrypoints.http.services import Reply

LOOK_S = 0.1
AT_ONCE = 64
CALLED_S = 5.0
"""How long a request's thread sleeps without being called: only a net below the pump's own looks."""


class Sink(Protocol):
    """Where the deltas of one reply go; called by the pump's thread."""

    def take(self, deltas: list[ReplyDelta]) -> bool:
        """Take deltas without waiting; False hands these and all later ones to the request's own thread."""
        ...

    def calls(self) -> bool:
        """Whether the request's own thread has something to look at; asked every tenth of a second."""
        ...


class Source(Protocol):
    """Where the thread of a request gets its reply's events."""

    def next(self, timeout: float) -> ReplyEvent | None:
        """The next event that this thread must handle, or None after `timeout` seconds or when called."""
        ...


class Tap:
    """One reply on the pump: a Source for the request's thread."""

    __slots__ = ("_handed", "_handing", "_moving", "_ready", "_reply", "_sink", "queued")

    def __init__(self, reply: Reply, sink: Sink, ready: Callable[[Tap], None]) -> None:
        self._reply = reply
        self._sink = sink
        self._ready = ready
        self._handing = False
        self._moving = threading.Lock()
        self._handed: queue.SimpleQueue[ReplyEvent | Exception | None] = queue.SimpleQueue()
        self.queued = False

    def heard(self) -> None:
        """An event waits; called by the thread that makes events, so it only leaves a note, one at a time."""
        if not self.queued:
            self.queued = True
            self._ready(self)

    def next(self, timeout: float) -> ReplyEvent | None:
        """What was handed over. Raises what the sink raised."""
        try:
            event = self._handed.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, Exception):
            raise event
        return event

    def seize(self) -> None:
        """From here on the sink gets nothing: the request's thread is about to write the end itself."""
        with self._moving:
            self._handing = True

    def advance(self) -> None:
        """Take the events that wait, so many at once. Called by the pump's thread alone."""
        # The note is taken back first: an event that comes from here on leaves a new one.
        self.queued = False
        try:
            self._advance()
        except Exception as broken:
            self._handing = True
            self._handed.put(broken)

    def look(self) -> None:
        """Wake the request's thread when there is something for it to see."""
        try:
            if self._sink.calls():
                self._handed.put(None)
        except Exception as broken:
            self._handed.put(broken)

    def _advance(self) -> None:
        pull = self._reply.next
        deltas: list[ReplyDelta] = []
        for _ in range(AT_ONCE):
            event = pull(0.0)
            if event is None:
                break
            if event.__class__ is ReplyDelta and not self._handing:
                assert isinstance(event, ReplyDelta)
                deltas.append(event)
                continue
            self._pass_on(deltas)
            deltas = []
            self._handing = True
            self._handed.put(event)
        else:
            # More may wait: others come first, then this reply again.
            self.heard()
        self._pass_on(deltas)

    def _pass_on(self, deltas: list[ReplyDelta]) -> None:
        if not deltas:
            return
        with self._moving:
            if not self._handing and self._sink.take(deltas):
                return
            self._handing = True
        for delta in deltas:
            self._handed.put(delta)


class Pump:
    """The thread. Replies may be attached before it starts; they wait until then."""

    def __init__(self) -> None:
        self._ready: queue.SimpleQueue[Tap | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._taps: set[Tap] = set()
        self._stopping = False
        self._thread = threading.Thread(target=self._main, name="pump", daemon=True)

    def start(self) -> None:
        """Begin to take deltas."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. Attached replies are not moved any more; they must have ended before."""
        self._stopping = True
        self._ready.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    def attach(self, reply: Reply, sink: Sink) -> Tap:
        """Move the deltas of `reply` into `sink` from now on; what cannot be moved comes out of the tap."""
        tap = Tap(reply, sink, self._ready.put)
        with self._lock:
            self._taps.add(tap)
        reply.listen(tap.heard)
        return tap

    def detach(self, tap: Tap) -> None:
        """Forget a reply that is over."""
        with self._lock:
            self._taps.discard(tap)

    def _main(self) -> None:
        next_look = time.monotonic() + LOOK_S
        while not self._stopping:
            wait = next_look - time.monotonic()
            try:
                tap = self._ready.get(timeout=wait) if wait > 0 else None
            except queue.Empty:
                tap = None
            if tap is not None:
                tap.advance()
                continue
            next_look = time.monotonic() + LOOK_S
            with self._lock:
                taps = tuple(self._taps)
            for attached in taps:
                attached.look()
