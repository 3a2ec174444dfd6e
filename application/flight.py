"""The device call in flight and how long its measured cost allows it, so that another thread can tell a wedge."""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.application.ports.machine import Clock


@dataclass(frozen=True, slots=True)
class Call:
    """One call into the model: what it is, when it began and when its costs say it is overdue (monotonic seconds)."""

    what: str
    began: float
    overdue: float


class Flight:
    """Set by the engine thread around each call; read by any thread."""

    def __init__(self, clock: Clock, factor: float, grace_s: float) -> None:
        self._clock = clock
        self._factor = factor
        self._grace_s = grace_s
        self._call: Call | None = None

    def depart(self, what: str, cost_ms: float) -> float:
        """A call that should take `cost_ms` begins; returns the time it began."""
        began = self._clock.monotonic()
        self._call = Call(what, began, began + self._factor * cost_ms / 1000.0 + self._grace_s)
        return began

    def arrive(self) -> float:
        """The call came back, or raised; host work between calls has the grace alone. Returns the time."""
        now = self._clock.monotonic()
        self._call = Call("host", now, now + self._grace_s)
        return now

    def idle(self) -> None:
        """The engine thread waits for work."""
        self._call = None

    def stuck(self) -> Call | None:
        """The call in flight when it is overdue."""
        call = self._call
        return call if call is not None and self._clock.monotonic() > call.overdue else None
