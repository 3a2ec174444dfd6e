"""The reader's side of the record in memory: where the last ids of a stream occurred, and what followed them.

Knows ids only: no file, no thread, no stream. Reads while another thread writes, and waits for nothing: what it gives
was in the record, whole and in order, when it looked; a place that has gone since leads nowhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from tensorfold.domain.recall.chains import Chains
from tensorfold.domain.recall.layout import CHUNK_IDS, KEY_IDS, SEPARATOR
from tensorfold.domain.recall.lengths import matches
from tensorfold.domain.recall.places import Place

MOST_STEPS = 192
"""Positions of a slot that are looked at while too few places are found: other keys share it, or nothing follows."""
_SHIFT = CHUNK_IDS.bit_length() - 1
_OFFSET = CHUNK_IDS - 1


class RecordReader:
    """Finds places by the KEY_IDS ids before them. Its methods are for one thread, not the one that writes.

    A place is named by its chunk's number and its offset there. Numbers are never used twice, so a place found once
    never comes to name something else. Matches and continuations end at separators and at the ends of chunks.
    """

    def __init__(self, chains: Chains, vocabulary: int, whole: bool) -> None:
        """Ids are 0 .. `vocabulary` - 1. Nothing is found while it is not `whole`."""
        self.vocabulary = vocabulary
        self.whole = whole
        self._chains = chains
        self._era = 0

    @property
    def era(self) -> int:
        """How often everything was forgotten."""
        return self._era

    def find(self, tokens: Sequence[int], most: int) -> list[Place]:
        """See Places.find. Of a text that is everywhere the newest places are compared; lengths count up to REACH."""
        key = list(map(int, tokens[-KEY_IDS:]))
        if len(key) < KEY_IDS or most < 1 or not self.whole:
            return []
        found = matches(tokens, self._chains.walk(key, MOST_STEPS, 1), most)
        return [Place(length, chunk.number << _SHIFT | stop) for length, (chunk, stop) in found]

    def advance(self, places: Sequence[Place], fresh: Sequence[int]) -> list[Place]:
        """See Places.advance."""
        try:
            wanted = array("i", fresh).tobytes()
        except OverflowError:
            return []
        if SEPARATOR in fresh:
            return []
        live, count = self._chains.live, len(fresh)
        kept: list[Place] = []
        for length, at in places:
            chunk = live.get(at >> _SHIFT)
            if chunk is None:
                continue
            start = at & _OFFSET
            stop, ids = start + count, chunk.id_at
            if stop < chunk.published and ids[start:stop].tobytes() == wanted and ids[stop] != SEPARATOR:
                # What Place(...) does, in half the time.
                kept.append(tuple.__new__(Place, (length + count, at + count)))
        return kept

    def following(self, at: int, count: int) -> tuple[int, ...]:
        """See Places.following."""
        chunk = self._chains.live.get(at >> _SHIFT)
        return () if chunk is None else tuple(chunk.following(at & _OFFSET, count))
