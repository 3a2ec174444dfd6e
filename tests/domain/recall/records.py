"""A record made by hand for tests of the index: pieces written as a store would, and a plain search over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.keys import slot_of
from tensorfold.domain.recall.layout import CHUNK_BYTES, CHUNK_IDS, KEY_IDS, SEPARATOR, Ids, Part, seam
from tensorfold.domain.recall.lengths import REACH

VOCABULARY = 1000
SMALLEST = 2 * CHUNK_BYTES
# Differences that no key shows: the sum of each, weighted as keys are, is a multiple of 2**64. Found by reducing the
# lattice of all such differences.
INVISIBLE = (
    (4, 8, 5, 4, 0, -2, 4, -5, 9, -5, -3, -1, 5, -7, 3, 1),
    (-9, 3, -4, 3, 3, 4, 1, 5, -5, 10, 2, 0, 5, 1, -8, 1),
    (13, 5, 9, 1, -3, -6, 3, -10, 14, -15, -5, -1, 0, -8, 11, 0),
)


def ids(*values: int) -> Ids:
    return np.array(values, dtype=np.int32)


def text(seed: int, length: int, vocabulary: int = VOCABULARY) -> Ids:
    """Ids without a repeated key, for all practical purposes."""
    return np.random.default_rng(seed).integers(0, vocabulary, length, dtype=np.int32)


def like(difference: tuple[int, ...], seed: int) -> tuple[Ids, Ids]:
    """Two rows of ids that differ by `difference`, which have the same key."""
    left = text(seed, KEY_IDS, 900) + 50
    right = left + np.array(difference, dtype=np.int32)
    assert slot_of(left.tolist(), 2**32) == slot_of(right.tolist(), 2**32)
    return left, right


def empty(vocabulary: int = VOCABULARY, chunks: int = 2) -> RecordIndex:
    return RecordIndex(chunks * CHUNK_BYTES, vocabulary)


def holding(*pieces: Ids, vocabulary: int = VOCABULARY) -> RecordIndex:
    """An index with these pieces, one after another in one chunk."""
    record = Record(empty(vocabulary))
    for piece in pieces:
        record.store(piece)
    return record.index


@dataclass
class Record:
    """Chunks of pieces, the index kept beside them, and what a plain search would find."""

    index: RecordIndex
    sequence: int = 1
    offset: int = 0
    chunks: dict[int, list[tuple[int, Ids]]] = field(default_factory=dict)

    def store(self, piece: Ids) -> None:
        """Append a piece, cut at the chunk's end where it does not fit."""
        while len(piece):
            here, piece = seam(piece, CHUNK_IDS - self.offset)
            if len(here):
                self.index.add(Part(self.sequence, self.offset, here))
                self.chunks.setdefault(self.sequence, []).append((self.offset, here))
                self.offset += len(here) + 1
            if len(piece):
                self.turn()

    def turn(self) -> None:
        """Begin the next chunk."""
        self.sequence, self.offset = self.sequence + 1, 0

    def leave(self, room: int) -> None:
        """Skip what the chunk has left but for `room` ids."""
        self.offset = CHUNK_IDS - room

    def drop(self) -> None:
        """The oldest chunk goes."""
        oldest = min(self.chunks)
        del self.chunks[oldest]
        self.index.drop([oldest])

    def clear(self) -> None:
        self.chunks.clear()
        self.index.clear()
        self.turn()

    def reload(self) -> None:
        """The chunks as they would be read again, into a new index."""
        self.index = RecordIndex(SMALLEST * 2, self.index.vocabulary)
        for sequence, pieces in sorted(self.chunks.items()):
            offset, last = pieces[-1]
            read = np.full(min(offset + len(last) + 1, CHUNK_IDS), SEPARATOR, dtype=np.int32)
            for offset, piece in pieces:
                read[offset : offset + len(piece)] = piece
            self.index.load(sequence, read)

    def places(self, tokens: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Every place that matches: length and all that follows, longest first, of equal ones the newest."""
        found = []
        for _, pieces in sorted(self.chunks.items(), reverse=True):
            for _, piece in reversed(pieces):
                lengths = shared_ends(tokens, piece).tolist()
                found += [
                    (min(lengths[at], REACH), piece[at:].tolist()) for at in range(len(piece) - 1, KEY_IDS - 1, -1)
                ]
        return sorted([place for place in found if place[0] >= KEY_IDS], key=lambda place: -place[0])


def shared_ends(tokens: Sequence[int], piece: Ids) -> NDArray[np.int64]:
    """For each place of a piece, how many ids before it equal the last ones of `tokens`."""
    lengths = np.zeros(len(piece) + 1, dtype=np.int64)
    for back, token in enumerate(reversed(tokens)):
        there = np.concatenate([np.full(back + 1, SEPARATOR), piece])[: len(lengths)]
        goes_on = (lengths == back) & (there == token) & (token >= 0)
        if not goes_on.any():
            break
        lengths += goes_on
    return lengths
