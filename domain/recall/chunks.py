"""One chunk of the record in memory: its ids, and for each id where the same key occurred before.

Knows one chunk only, neither files nor threads. The writer fills it from its start on; whoever reads looks at nothing
at or past `published`, so what is there never changes while somebody looks. A chunk that was dropped is never filled
again: a reader that still has it sees what it saw before.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.recall.layout import CHUNK_IDS, SEPARATOR, Ids

CHUNK_MEMORY_BYTES = 8 * CHUNK_IDS
"""Four bytes of id and four of link for each id, taken when the first id comes."""


class Chunk:
    """CHUNK_IDS places for ids with a link each; `number` is its own among all chunks an index ever had.

    `id_at` and `link_at` read single values of `ids` and `links` in a third of the time.
    """

    __slots__ = ("id_at", "ids", "link_at", "links", "number", "published", "sequence", "tokens")

    def __init__(self, sequence: int, number: int) -> None:
        # One block for both is handed back to the system whole when the chunk goes.
        block = np.empty((2, CHUNK_IDS), dtype=np.uint32)
        self.sequence = sequence
        self.number = number
        self.ids: Ids = block[0].view(np.int32)
        self.links: NDArray[np.uint32] = block[1]
        self.id_at = self.ids.data
        self.link_at = self.links.data
        self.published = 0
        """How many values from the start are there to be read, separators included."""
        self.tokens = 0
        """How many of those are ids."""

    def write(self, ids: Ids, offset: int, vocabulary: int) -> None:
        """Put ids where nothing is published; what is not in 0 .. `vocabulary` - 1 becomes a separator."""
        place = self.ids[offset : offset + len(ids)]
        place[:] = ids
        # As unsigned numbers the negative ones are large too.
        place[place.view(np.uint32) >= vocabulary] = SEPARATOR

    def publish(self, published: int) -> None:
        """Let everything before `published` be read."""
        self.tokens += int(np.count_nonzero(self.ids[self.published : published] >= 0))
        self.published = published

    def following(self, offset: int, count: int) -> list[int]:
        """The ids from `offset` on, at most `count`, up to the end of the piece or of what is published."""
        ids: list[int] = self.id_at[offset : min(offset + count, self.published)].tolist()
        return ids[: ids.index(SEPARATOR)] if SEPARATOR in ids else ids
