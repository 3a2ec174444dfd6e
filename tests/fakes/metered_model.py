"""A target model whose lanes and passes take bytes from a fake allocator, as a memory plan reckons them.

A pass takes its work while it runs and grows its lane before it commits, as a device does; what cannot be had raises
MemoryError and leaves every lane as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import Lane, LaneImage, Path, RoundBatch, Span, TargetModel, Ticket
from tensorfold.domain.memory.plan import MemoryPlan
from tests.fakes.machine import FakeMemory
from tests.fakes.wrapped_model import WrappedModel


@dataclass(slots=True)
class _Held:
    """A lane: tokens in it, the most it may absorb, bytes of its buffers."""

    tokens: int
    capacity: int
    bytes: int


class MeteredModel(WrappedModel):
    """`inner` over `memory`; the weights are taken when it is made."""

    def __init__(self, inner: TargetModel, plan: MemoryPlan, memory: FakeMemory) -> None:
        super().__init__(inner)
        self._plan, self._memory = plan, memory
        self._lanes: dict[Lane, _Held] = {}
        self._launched: dict[int, tuple[Lane, ...]] = {}
        memory.allocate(plan.footprint.weights)

    def open(self, capacity: int) -> Lane:
        """As the port says."""
        return self._taken(0, capacity, lambda: self.inner.open(capacity))

    def close(self, lane: Lane) -> None:
        """As the port says."""
        self.inner.close(lane)
        self._memory.free(self._lanes.pop(lane).bytes)

    def fork(self, lane: Lane) -> Lane:
        """As the port says."""
        held = self._lanes[lane]
        return self._taken(held.tokens, held.capacity, lambda: self.inner.fork(lane))

    def resume(self, lane: Lane, capacity: int) -> Lane:
        """As the port says."""
        return self._taken(self._lanes[lane].tokens, capacity, lambda: super(MeteredModel, self).resume(lane, capacity))

    def restore(self, image: LaneImage, capacity: int) -> Lane:
        """As the port says."""
        return self._taken(image.length, capacity, lambda: self.inner.restore(image, capacity))

    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """As the port says."""
        with self._work(span.stop):
            self._grow(lane, span.stop)
        ticket = self.inner.prefill(lane, ids, span)
        self._lanes[lane].tokens = span.stop
        return ticket

    def launch(self, batch: RoundBatch) -> Ticket:
        """As the port says."""
        with self._work(max(w.position + len(w.window) for w in batch.windows)):
            for asked in batch.windows:
                self._grow(asked.lane, asked.position + len(asked.window))
        ticket = self.inner.launch(batch)
        self._launched[ticket.id] = tuple(asked.lane for asked in batch.windows)
        return ticket

    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        """As the port says."""
        self.inner.keep(ticket, paths)
        for lane, path in zip(self._launched.pop(ticket.id), paths, strict=True):
            if lane in self._lanes:
                self._lanes[lane].tokens += len(path)

    def _taken(self, tokens: int, capacity: int, make: Callable[[], Lane]) -> Lane:
        size = self._plan.lane(tokens, capacity)
        self._memory.allocate(size)
        try:
            lane = make()
        except BaseException:
            self._memory.free(size)
            raise
        self._lanes[lane] = _Held(tokens, capacity, size)
        return lane

    def _grow(self, lane: Lane, tokens: int) -> None:
        """Room for so many tokens; buffers never shrink."""
        held = self._lanes[lane]
        size = self._plan.lane(min(tokens, held.capacity), held.capacity)
        if size > held.bytes:
            self._memory.allocate(size - held.bytes)
            held.bytes = size

    @contextmanager
    def _work(self, tokens: int) -> Iterator[None]:
        size = self._plan.work(tokens)
        self._memory.allocate(size)
        try:
            yield
        finally:
            self._memory.free(size)
