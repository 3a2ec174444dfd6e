"""How the record lays ids out: chunks, pieces and what separates them. The one place that knows the sizes.

A run is what one request read and wrote. A piece is a part of a run worth keeping, stored whole in one chunk where it
fits; a separator follows each piece, so that no copy runs from one text into another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]

CHUNK_IDS = 1 << 20
"""Ids of a full chunk, separators included."""
ID_BYTES = 4
CHUNK_BYTES = ID_BYTES * CHUNK_IDS
SEPARATOR = -1
"""Ends a piece. Whatever is read that is not an id of the vocabulary counts as one."""
KEY_IDS = 16
"""Ids that must match before a copy begins, and the length of an index key."""
LEAD_IDS = 64
"""Ids kept before a novel span, so that every match class can reach its first id."""
TAIL_IDS = 16
"""Ids kept after a novel span, so that a copy can run on into text that is held elsewhere."""
HELD_IDS = 128
"""The shortest run already held that is not added again."""
LEAST_RUN = KEY_IDS + 1
"""The shortest run of use: a key to match and one id to copy."""
LEAST_CHUNKS = 2
MOST_CHUNKS = 2048
"""Bounds of a budget: one chunk would be emptied to start the next; more have positions past 31 bits."""


@dataclass(frozen=True, slots=True)
class Part:
    """Ids of a piece as they lie in one chunk: from `offset` (ids from the chunk's start) of chunk `sequence`.

    `ids` holds no separator; one follows the part in the chunk unless the chunk ends there.
    """

    sequence: int
    offset: int
    ids: Ids


def seam(piece: Ids, room: int) -> tuple[Ids, Ids]:
    """A piece cut where its chunk ends: what goes into the `room` ids left, and what begins the next chunk.

    The second begins with the last LEAD_IDS of the first, so that matches survive the seam; it is empty when all fits.
    A first part too short to be of use is left empty and the piece moves to the next chunk whole.
    """
    if len(piece) <= room:
        return piece, piece[:0]
    if room < LEAST_RUN:
        return piece[:0], piece
    return piece[:room], piece[max(0, room - LEAD_IDS) :]
