"""Counts the replies in flight, refuses more than the threads can carry, and ends them when the server stops.

Knows no sockets. Every reply that enters leaves exactly once; after a drain nothing enters, and once its grace is over
every reply is told to end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tensorfold.entrypoints.http.errors import ApiError, overloaded

ENDING = "The server is shutting down and takes no new requests."
CUT = "The server is shutting down; the reply was ended before it was whole."


class Gate:
    """Admission of replies by number. `limit` replies may be inside at once."""

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._changed = threading.Condition()
        self._inside = 0
        self._deadline: float | None = None
        self._disconnections = 0

    def enter(self) -> None:
        """Take a place. Raises ApiError (503) when none is free or the server is ending."""
        with self._changed:
            if self._deadline is not None:
                raise overloaded(ENDING, 5)
            if self._inside >= self._limit:
                raise self._full()
            self._inside += 1

    def leave(self, *, disconnected: bool = False) -> None:
        """Give the place back; `disconnected` counts a client that left before its reply was whole."""
        with self._changed:
            self._inside -= 1
            self._disconnections += disconnected
            self._changed.notify_all()

    def drain(self, grace_s: float) -> None:
        """Let nothing in any more; what is inside may go on for `grace_s` seconds. A later call only shortens it."""
        with self._changed:
            deadline = self._clock() + grace_s
            self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
            self._changed.notify_all()

    @property
    def draining(self) -> bool:
        """Whether new work is refused because the server is ending."""
        return self._deadline is not None

    @property
    def over(self) -> bool:
        """Whether the grace of a drain is over: a reply that still runs must end now."""
        return self._deadline is not None and self._clock() >= self._deadline

    @property
    def inside(self) -> int:
        """Replies in flight."""
        return self._inside

    @property
    def disconnections(self) -> int:
        """Clients that left before their reply was whole, so far."""
        return self._disconnections

    def wait_empty(self, timeout_s: float) -> bool:
        """Wait until no reply is in flight; False when `timeout_s` seconds were not enough."""
        with self._changed:
            return self._changed.wait_for(lambda: self._inside == 0, timeout_s)

    def _full(self) -> ApiError:
        return overloaded(f"{self._inside} requests are running or waiting, the most this server carries.", 2)
