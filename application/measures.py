"""Everything that is measured of a running server, in one reading that waits for nobody."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tensorfold.application.counters import Counters
from tensorfold.application.health import Status
from tensorfold.application.memory_figures import MemoryFigures
from tensorfold.application.metering import Meter, MeterFigures
from tensorfold.application.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class Measures:
    """One reading. `counters` is a copy. `paused` streams of those that decode or fill wait for memory.

    `drafts` says whether drafts are verified at all, `shares` whether streams can share a launch: where one does not,
    its counts mean nothing.
    """

    status: Status
    decoding: int
    filling: int
    waiting: int
    parallel: int
    drafts: bool
    shares: bool
    counters: Counters
    replies: MeterFigures
    paused: int = 0
    memory: MemoryFigures | None = None


class MeasureService:
    """Reads one scheduler and the meter it tells; `status` is its health in one word."""

    def __init__(self, scheduler: Scheduler, meter: Meter, status: Callable[[], Status], *, drafts: bool) -> None:
        self._scheduler = scheduler
        self._meter = meter
        self._status = status
        self._drafts = drafts

    def read(self) -> Measures:
        """As it stands now. The model must be loaded."""
        scheduler, counters = self._scheduler, self._scheduler.counters
        decoding, filling, waiting = scheduler.loads()
        return Measures(
            status=self._status(),
            decoding=decoding,
            filling=filling,
            waiting=waiting,
            parallel=scheduler.parallel,
            drafts=self._drafts,
            shares=scheduler.parallel > 1 and scheduler.engine.model.limits.shares_rounds,
            # Kept before drafted, so that no reading has more of the former.
            counters=replace(counters, kept=counters.kept.copy(), drafted=counters.drafted.copy()),
            replies=self._meter.figures(),
            paused=scheduler.paused(),
            memory=scheduler.memory(),
        )
