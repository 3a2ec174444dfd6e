"""A hash model whose bits depend on where the calls that read a prompt begin, as a device's may.

A prompt that is resumed anywhere but on its own way, or with other chunks before, leaves another state and draws other
tokens. Pieces of rounds do not count: rows keep their bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import Lane, LaneImage, Span, Ticket
from tests.fakes.hash_law import absorb
from tests.fakes.hash_model import HashModel


class ChunkyModel(HashModel):
    """Remembers in a lane's state the start of each span of a prompt.

    `exported` and `restored` count images, `forked` forks and `resumed` lanes that went on from one.
    """

    exported = restored = forked = resumed = 0

    def prefill(self, lane: Lane, ids: NDArray[np.int64], span: Span) -> Ticket:
        """As the port says."""
        ticket = super().prefill(lane, ids, span)
        held = self._lanes[lane]
        held.state = absorb(held.state, span.start)
        return ticket

    def export(self, lane: Lane) -> LaneImage:
        """As the port says."""
        self.exported += 1
        return super().export(lane)

    def fork(self, lane: Lane) -> Lane:
        """As the port says."""
        self.forked += 1
        return super().fork(lane)

    def resume(self, lane: Lane, capacity: int) -> Lane:
        """As the port says."""
        self.resumed += 1
        return super().resume(lane, capacity)

    def restore(self, image: LaneImage, capacity: int) -> Lane:
        """As the port says."""
        self.restored += 1
        return super().restore(image, capacity)
