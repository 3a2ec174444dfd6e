"""Recall itself as a policy: the index, the rule of what is added, and the source of a server, without a disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.layout import CHUNK_BYTES, CHUNK_IDS, Ids, Part, seam
from tensorfold.domain.recall.pieces import novel
from tensorfold.domain.recall.policy import OfferPolicy
from tensorfold.domain.recall.source import RecallSourceFactory
from tests.benchmarks.replay.policy import WithSource

BUDGET = 4 * CHUNK_BYTES


class MemoryRecord:
    """A record that lives in its index alone: runs are deduplicated and cut into chunks as the store does."""

    def __init__(self, vocabulary: int) -> None:
        self.index = RecordIndex(BUDGET, vocabulary)
        self._sequence = self._offset = 0

    def remember(self, run: Sequence[int]) -> None:
        """Add what of a run is not held."""
        for piece in novel(np.array(run, dtype=np.int32), self.index).pieces:
            self._append(piece)

    def _append(self, piece: Ids) -> None:
        while len(piece):
            part, piece = seam(piece, CHUNK_IDS - self._offset)
            if len(part):
                self.index.add(Part(self._sequence, self._offset, part))
                self._offset += len(part) + 1
            if len(piece):
                self._sequence, self._offset = self._sequence + 1, 0


def recall(vocabulary: int) -> WithSource:
    """A fresh record and the source over it."""
    record = MemoryRecord(vocabulary)
    return WithSource("recall", RecallSourceFactory(record.index, OfferPolicy()), record.remember)
