"""A target model whose launches take as long as a test wants: the wait happens where a device would be waited for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import Draws, Lane, RoundBatch, Span, TargetModel, Ticket
from tests.fakes.wrapped_model import WrappedModel


class PacedModel(WrappedModel):
    """Waits in `collect`: `launch_s(rows)` seconds for a launch, `prefill_row_s` seconds a row for a prefill.

    `sleep` does the waiting (time.sleep, or a fake clock's `advance`); `slept_s` adds up what it was asked for. None as
    `sleep` waits for nothing.
    """

    def __init__(
        self,
        inner: TargetModel,
        sleep: Callable[[float], object],
        launch_s: float | Callable[[int], float] = 0.01,
        prefill_row_s: float = 0.0,
    ) -> None:
        super().__init__(inner)
        self.slept_s = 0.0
        self._sleep = sleep
        self._launch_s = launch_s
        self._prefill_row_s = prefill_row_s
        self._due: dict[int, float] = {}

    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """As the port says; its time is due when it is collected."""
        ticket = self.inner.prefill(lane, ids, span)
        self._due[ticket.id] = self._prefill_row_s * ticket.rows
        return ticket

    def launch(self, batch: RoundBatch) -> Ticket:
        """As the port says; its time is due when it is collected."""
        ticket = self.inner.launch(batch)
        self._due[ticket.id] = self._launch_s(ticket.rows) if callable(self._launch_s) else self._launch_s
        return ticket

    def collect(self, ticket: Ticket) -> Draws:
        """As the port says, after the ticket's time."""
        due = self._due.pop(ticket.id, 0.0)
        if due > 0.0:
            self.slept_s += due
            self._sleep(due)
        return self.inner.collect(ticket)

    def discard(self, ticket: Ticket) -> None:
        """As the port says; its time is no longer due."""
        self._due.pop(ticket.id, None)
        self.inner.discard(ticket)
