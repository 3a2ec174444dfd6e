"""A target model that hands every call to another one: the base of models that change one thing of another.

Knows nothing of what it wraps; a class derived from it states what it changes and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import (
    Chain,
    Draws,
    Lane,
    LaneImage,
    Lattice,
    ModelCosts,
    ModelIdentity,
    ModelLimits,
    Path,
    PromptEndModel,
    ProposeSpec,
    RoundBatch,
    Span,
    TargetModel,
    Ticket,
)


class WrappedModel:
    """Every call goes to `inner` unchanged."""

    def __init__(self, inner: TargetModel) -> None:
        self.inner = inner

    @property
    def identity(self) -> ModelIdentity:
        """The inner model's."""
        return self.inner.identity

    @property
    def limits(self) -> ModelLimits:
        """The inner model's."""
        return self.inner.limits

    @property
    def costs(self) -> ModelCosts:
        """The inner model's."""
        return self.inner.costs

    def open(self, capacity: int) -> Lane:
        """As the port says."""
        return self.inner.open(capacity)

    def close(self, lane: Lane) -> None:
        """As the port says."""
        self.inner.close(lane)

    def fork(self, lane: Lane) -> Lane:
        """As the port says."""
        return self.inner.fork(lane)

    def resume(self, lane: Lane, capacity: int) -> Lane:
        """As the port says, of a model that resumes from prompt ends."""
        return cast(PromptEndModel, self.inner).resume(lane, capacity)

    def lanes(self) -> tuple[Lane, ...]:
        """As the port says."""
        return self.inner.lanes()

    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """As the port says."""
        return self.inner.prefill(lane, ids, span)

    def launch(self, batch: RoundBatch) -> Ticket:
        """As the port says."""
        return self.inner.launch(batch)

    def collect(self, ticket: Ticket) -> Draws:
        """As the port says."""
        return self.inner.collect(ticket)

    def keep(self, ticket: Ticket, paths: Sequence[Path]) -> None:
        """As the port says."""
        self.inner.keep(ticket, paths)

    def discard(self, ticket: Ticket) -> None:
        """As the port says."""
        self.inner.discard(ticket)

    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        """As the port says."""
        return self.inner.propose(specs)

    def export(self, lane: Lane) -> LaneImage:
        """As the port says."""
        return self.inner.export(lane)

    def restore(self, image: LaneImage, capacity: int) -> Lane:
        """As the port says."""
        return self.inner.restore(image, capacity)

    def shutdown(self) -> None:
        """As the port says."""
        self.inner.shutdown()
