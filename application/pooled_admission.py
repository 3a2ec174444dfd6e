"""Admission where lanes are pages of pools that were allocated at the load: what is active tells nothing of them.

Decisions are arithmetic on the very pools that were planned. A request that resumes a kept prompt end shares its whole
pages, so it is not charged for them twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from tensorfold.application.admission import MemoryAdmission, Retained, Verdict
from tensorfold.application.memory_figures import MemoryFigures
from tensorfold.application.ports.machine import MemoryRuntime
from tensorfold.domain.memory.gate import Stake
from tensorfold.domain.memory.plan import MemoryPlan


@runtime_checkable
class Sharing(Protocol):
    """Kept prompt ends whose pages lanes may share."""

    def shared(self, keep: object) -> int:
        """Bytes of what is held that a lane resuming `keep` would count as its own."""
        ...


class PooledAdmission(MemoryAdmission):
    """As `MemoryAdmission`, over a plan whose room is that of its pools."""

    def __init__(self, plan: MemoryPlan, runtime: MemoryRuntime, retained: Retained | None = None) -> None:
        super().__init__(plan, _Unmeasured(runtime), retained)
        self._told = runtime
        self._shared = 0

    def admit(self, ask: Stake, streams: Sequence[Stake], param: str, keep: object = None) -> Verdict:
        """As the port says."""
        kept = self.retained
        self._shared = kept.shared(keep) if keep is not None and isinstance(kept, Sharing) else 0
        try:
            return super().admit(ask, streams, param, keep)
        finally:
            self._shared = 0

    def release(self) -> None:
        """Nothing is handed back: scratch is part of the plan, and a card's allocator frees it before it gives up."""

    def figures(self, streams: Sequence[Stake], paused: Sequence[Stake] = ()) -> MemoryFigures | None:
        """As the port says; the allocator's own figures have the pools as a whole among them."""
        known, told = super().figures(streams, paused), self._told
        return None if known is None else replace(known, active=told.active(), cached=told.cached(), peak=told.peak())

    def _room(self, streams: Sequence[Stake]) -> int:
        return super()._room(streams) + self._shared


class _Unmeasured:
    """A runtime whose figures decide nothing."""

    def __init__(self, runtime: MemoryRuntime) -> None:
        self._runtime = runtime

    def active(self) -> int | None:
        """Not asked."""
        return None

    def cached(self) -> int | None:
        """Not asked."""
        return None

    def peak(self) -> int | None:
        """Not asked."""
        return None

    def limit(self, size: int) -> bool:
        """The runtime's."""
        return self._runtime.limit(size)

    def limit_cache(self, size: int) -> bool:
        """The runtime's."""
        return self._runtime.limit_cache(size)

    def release(self) -> None:
        """The runtime's."""
        self._runtime.release()
