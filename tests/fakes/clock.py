"""Time that a test owns, and the machine's own for tests that must run on it."""

from __future__ import annotations

import threading
import time


class MachineClock:
    """The machine's clock, without an adapter."""

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix seconds."""
        return time.time()


class FakeClock:
    """Stands still until told. `advance` fits where a sleep is asked for; `slept` adds it up."""

    def __init__(self, monotonic: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._lock = threading.Lock()
        self._monotonic = monotonic
        self._wall = wall
        self.slept = 0.0

    def monotonic(self) -> float:
        """Seconds so far."""
        return self._monotonic

    def wall(self) -> float:
        """Unix seconds so far."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let time pass; never backwards."""
        if seconds < 0:
            raise ValueError(f"time does not go back {-seconds} s")
        with self._lock:
            self._monotonic += seconds
            self._wall += seconds
            self.slept += seconds

    def set_wall(self, wall: float) -> None:
        """Set the calendar, which may go back; the steady clock does not notice."""
        self._wall = wall
