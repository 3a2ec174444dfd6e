"""Truthful health: what the scheduler says of itself, and whether the call in flight is overdue by its own costs.

Reading health never waits for the engine thread. A watchdog writes every thread's stack once when a call gets stuck.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tensorfold.application.scheduler import Scheduler

Status = Literal["ok", "loading", "draining", "stuck", "failed"]


@dataclass(frozen=True, slots=True)
class Health:
    """`ok` is what a load balancer needs; `figures` may be shown to whoever may see them."""

    status: Status
    ok: bool
    figures: Mapping[str, int | float | str | Mapping[str, int]]


class HealthService:
    """Reports on one scheduler."""

    def __init__(self, scheduler: Scheduler, facts: Mapping[str, int | float | str]) -> None:
        self._scheduler = scheduler
        self._facts = facts

    def status(self) -> Status:
        """One word, from cheap reads."""
        phase = self._scheduler.phase
        if phase in ("draining", "stopped"):
            return "draining"
        if phase in ("loading", "failed"):
            return "loading" if phase == "loading" else "failed"
        return "stuck" if self._scheduler.engine.flight.stuck() is not None else "ok"

    def report(self) -> Health:
        """Status and figures."""
        status = self.status()
        decoding, filling, waiting = self._scheduler.loads()
        c = self._scheduler.counters
        figures: dict[str, int | float | str | Mapping[str, int]] = {
            **self._facts,
            "busy": int(decoding + filling > 0),
            "requests_running": decoding + filling,
            "requests_waiting": waiting,
            "requests_total": c.requests,
            "prompt_tokens_total": c.prompt_tokens,
            "completion_tokens_total": c.completion_tokens,
            "cached_tokens_total": c.cached_tokens,
            "prefill_seconds_total": round(c.prefill_s, 3),
            "decode_seconds_total": round(c.decode_s, 3),
            "rounds_total": c.rounds,
            "drafted_total": c.drafted_total,
            "accepted_total": c.kept_total,
            "streams": {
                "decoding": decoding,
                "prefilling": filling,
                "paused": self._scheduler.paused(),
                "max": self._scheduler.parallel,
            },
        }
        if (memory := self._scheduler.memory()) is not None:
            figures["memory"] = {f"{name}_bytes": size for name, size in memory.known().items()}
        return Health(status, status == "ok", figures)


class Watchdog:
    """Looks at health once a `period` and calls `dump` with a line when a call becomes stuck, once per call."""

    def __init__(self, scheduler: Scheduler, dump: Callable[[str], None], period: float = 1.0) -> None:
        self._scheduler = scheduler
        self._dump = dump
        self._period = period
        self._stopped = threading.Event()
        self._seen: object = None
        self._thread = threading.Thread(target=self._main, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin watching."""
        self._thread.start()

    def stop(self) -> None:
        """End watching and join."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()

    def look(self) -> bool:
        """One look; True when a stuck call was reported now."""
        if self._scheduler.phase not in ("ok", "draining"):
            return False
        call = self._scheduler.engine.flight.stuck()
        if call is None or call is self._seen:
            return False
        self._seen = call
        allowed = call.overdue - call.began
        self._dump(f"a call into the model ({call.what}) is overdue; its costs allowed {allowed:.1f} s")
        return True

    def _main(self) -> None:
        while not self._stopped.wait(self._period):
            self.look()
