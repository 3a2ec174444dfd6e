"""Hash chains over the chunks: from KEY_IDS ids to the places where they stand, newest first.

A table holds the newest position of each slot; a position's link is the next older one of the same slot. Written by
one thread while another reads without a lock: ids come first, then links, then the table. A position of a dropped
chunk ends its chain and is not looked at, so a chunk goes without work on the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tensorfold.domain.recall.chunks import Chunk
from tensorfold.domain.recall.keys import slot_of, slots_of, whole
from tensorfold.domain.recall.layout import CHUNK_IDS, KEY_IDS

_SHIFT = CHUNK_IDS.bit_length() - 1
_OFFSET = CHUNK_IDS - 1
_NUMBERS = 1 << (32 - _SHIFT)
_PAST = _NUMBERS << _SHIFT
"""Above every position."""
# Keys linked at once: enough to spare Python's cost, few enough that temporaries stay small and a reader waits little.
_BLOCK = 1 << 16
# Positions given at once: of a text that is everywhere the newest so many are compared.
_AT_ONCE = 64
_LOW, _UP = np.uint64(_OFFSET), np.uint64(_SHIFT)


Place = tuple[Chunk, int]
"""A chunk, and the offset of what follows a key there."""


class Chains:
    """The table, and the links in the chunks it leads to. `live` are those chunks by their number.

    A position is 32 bits: a chunk's number less `_base`, which is below every live one, and an offset. 0 is none.
    Numbers grow without end, so after some thousand chunks the links are made anew from another base.
    """

    __slots__ = ("_base", "_entries", "_head_at", "_heads", "_numbers", "live")

    def __init__(self, entries: int, numbers: int = _NUMBERS) -> None:
        """`entries` of 4 bytes; `numbers` of chunks, _NUMBERS or less, can be told apart at one time."""
        self.live: dict[int, Chunk] = {}
        self._entries = entries
        self._heads = np.zeros(entries, dtype=np.uint32)
        self._head_at = self._heads.data
        self._numbers = numbers
        self._base = 0

    @property
    def table_bytes(self) -> int:
        """Memory of the table."""
        return self._heads.nbytes

    def admit(self, chunk: Chunk) -> None:
        """Take a new chunk, with a number above all before."""
        self.live[chunk.number] = chunk
        if chunk.number - self._base >= self._numbers:
            self._rebase(min(self.live) - 1)

    def insert(self, chunk: Chunk, start: int, stop: int) -> None:
        """Chain every key within `start` to `stop` of a chunk that has no separator in it; its ids are written."""
        for low in range(start, stop - KEY_IDS + 1, _BLOCK):
            self._link(chunk, low, min(low + _BLOCK + KEY_IDS - 1, stop))

    def clear(self) -> None:
        """Forget every chunk and position."""
        self.live.clear()
        self._heads.fill(0)

    def walk(self, key: Sequence[int], steps: int, after: int) -> Iterator[list[Place]]:
        """Where KEY_IDS ids may stand, newest first, some at a time: whoever asks compares the ids there.

        These are the newest `steps` positions of its slot, but for those that fewer than `after` (0 or 1) published
        values follow.
        """
        base, live = self._base, self.live
        position, bound = self._head_at[slot_of(key, self._entries)], _PAST
        for taken in range(0, steps, _AT_ONCE):
            places: list[Place] = []
            for _ in range(min(steps - taken, _AT_ONCE)):
                # Positions only fall, whatever is written meanwhile: no chain is walked in a circle. 0 is of no chunk.
                chunk = live.get(base + (position >> _SHIFT)) if position < bound else None
                if chunk is None:
                    break
                offset = position & _OFFSET
                if offset + after < chunk.published:
                    places.append((chunk, offset + 1))
                position, bound = chunk.link_at[offset], position
            if self._base != base:
                # Links made anew during the walk may have led astray.
                return
            yield places
            if chunk is None:
                return

    def _link(self, chunk: Chunk, low: int, high: int) -> None:
        ids = chunk.ids[low:high]
        starts = np.flatnonzero(whole(ids))
        if not len(starts):
            return
        # Sorted as one number, slots come together with their positions in order.
        packed = (slots_of(ids, self._entries)[starts] << _UP) | (starts + (low + KEY_IDS - 1)).astype(np.uint64)
        packed.sort()
        offsets = (packed & _LOW).astype(np.intp)
        slots = (packed >> _UP).astype(np.intp)
        positions = offsets.astype(np.uint32) + np.uint32((chunk.number - self._base) << _SHIFT)
        again = slots[1:] == slots[:-1]
        older = self._heads[slots]
        np.copyto(older[1:], positions[:-1], where=again)
        chunk.links[offsets] = older
        newest = np.append(~again, True)
        self._heads[slots[newest]] = positions[newest]

    def _rebase(self, base: int) -> None:
        # A reader on its way sees the base change before it can meet a link made anew.
        self._heads.fill(0)
        self._base = base
        for number in sorted(self.live):
            chunk = self.live[number]
            self.insert(chunk, 0, chunk.published)
