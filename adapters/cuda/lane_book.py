"""Which pages, state places and ring rows belong to which lane: bookkeeping of integers, without a tensor.

A ring row is never overwritten while something may still read it, so nothing is copied from row to row: the book names
the rows of the last inputs and of kept rows that are not committed yet, and gives a new window others. What a launch
leaves changes here only when its rows are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from tensorfold.adapters.cuda.rows import CONV_PAST, PAGE
from tensorfold.domain.memory.cuda_holding import STATES, Room

NO_ROWS = (-1,) * CONV_PAST


class NoRoomError(Exception):
    """A slot, pages or a place cannot be had now."""


@dataclass(slots=True, eq=False)
class LaneEntry:
    """What one lane holds.

    `slot` is its place among the rows of launches, -1 for a kept state that takes part in none. `places` are state
    places: the committed one, the one that a launch leaves its state in, and the one for a launch ahead of that; a kept
    state has only the first. `last`: flat ring rows of the last inputs, oldest first, -1
    for none. `replay`: flat ring rows kept but not in the committed state yet. `own` are the flat ring rows it may use;
    of those, `spared` are last inputs of the lane that this one is ahead of, for as long as it may not come to that.
    """

    slot: int
    capacity: int
    own: range
    places: tuple[int, ...]
    pages: list[int] = field(default_factory=list)
    length: int = 0
    last: tuple[int, ...] = NO_ROWS
    replay: tuple[int, ...] = ()
    spared: tuple[int, ...] = ()

    @property
    def committed(self) -> int:
        """The place of the committed state."""
        return self.places[0]

    @property
    def spare(self) -> int:
        """The place that a launch leaves its state in."""
        return self.places[1]

    def rotate(self) -> None:
        """What a launch left becomes the committed state."""
        self.places = (*self.places[1:], self.places[0])

    def ahead(self, rows: Sequence[int]) -> LaneEntry:
        """The lane as it will stand when all `rows` of a launched chain are kept."""
        places = (*self.places[1:], self.places[0])
        return replace(
            self,
            places=places,
            length=self.length + len(rows),
            last=self.advanced(rows),
            replay=(),
            spared=self.last,
        )

    def free_rows(self, count: int) -> tuple[int, ...]:
        """Flat ring rows that nothing reads any more."""
        used = {*self.last, *self.replay, *self.spared}
        free = tuple(islice((row for row in self.own if row not in used), count))
        if len(free) < count:
            raise NoRoomError(f"{count} ring rows are needed and {len(free)} are free")
        return free

    def advanced(self, rows: Sequence[int]) -> tuple[int, ...]:
        """The last inputs behind further rows."""
        return (*self.last, *rows)[-CONV_PAST:]


class LaneBook:
    """The lanes of one room. Pages that several lanes share are counted; who writes one must own it alone."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self.nobody = LaneEntry(
            room.lanes - 1,
            PAGE,
            self._ring(room.lanes - 1),
            self._places(room.lanes - 1),
            [room.pages - 1],
        )
        self._slots = list(range(room.lanes - 2, -1, -1))
        self._kept = list(range(room.kept - 1, -1, -1))
        self._pages = list(range(room.pages - 2, -1, -1))
        self._sharers = [0] * room.pages

    @property
    def free_pages(self) -> int:
        """Pages nobody holds."""
        return len(self._pages)

    @property
    def free_slots(self) -> int:
        """Lanes that may still be opened."""
        return len(self._slots)

    @property
    def free_kept(self) -> int:
        """Kept states that there is room for."""
        return len(self._kept)

    def _ring(self, slot: int) -> range:
        return range(slot * self.room.ring, (slot + 1) * self.room.ring)

    def _places(self, slot: int) -> tuple[int, ...]:
        return tuple(range(STATES * slot, STATES * (slot + 1)))

    def open(self, capacity: int) -> LaneEntry:
        """A lane for `capacity` tokens, with pages for all of them and a window. Raises NoRoomError."""
        pages = -(-(capacity + self.room.width) // PAGE)
        if not self._slots:
            raise NoRoomError("all lanes are in use")
        if pages > len(self._pages):
            raise NoRoomError(f"{pages} pages are needed and {len(self._pages)} are free")
        slot = self._slots.pop()
        entry = LaneEntry(slot, capacity, self._ring(slot), self._places(slot))
        entry.pages = [self._take() for _ in range(pages)]
        return entry

    def _take(self) -> int:
        page = self._pages.pop()
        self._sharers[page] = 1
        return page

    def close(self, entry: LaneEntry) -> None:
        """Give back what a lane or a kept state holds."""
        for page in entry.pages:
            self._sharers[page] -= 1
            if not self._sharers[page]:
                self._pages.append(page)
        entry.pages = []
        if entry.slot >= 0:
            self._slots.append(entry.slot)
        else:
            self._kept.append(entry.committed - STATES * self.room.lanes)

    def keep(self, entry: LaneEntry) -> tuple[LaneEntry, list[tuple[int, int]]]:
        """A kept state of a lane's committed tokens, and the pages to copy for it: (from, to).

        Whole pages are shared, since lanes only ever write behind their length; the last one, which the lane goes on
        writing, is copied, even if it is full: a draft head enters the last token once the one behind it is known.
        Raises NoRoomError.
        """
        whole, rest = _parted(entry.length)
        if not self._kept or (rest and not self._pages):
            raise NoRoomError("no room for another kept state")
        number = self._kept.pop()
        start = self.room.lanes * self.room.ring + CONV_PAST * number
        place = STATES * self.room.lanes + number
        kept = LaneEntry(-1, entry.capacity, range(start, start + CONV_PAST), (place,))
        return kept, self._share(entry, kept, whole, rest)

    def resume(self, kept: LaneEntry, capacity: int) -> tuple[LaneEntry, list[tuple[int, int]]]:
        """A lane behind a kept state's tokens, which stays kept, and the pages to copy for it. Raises NoRoomError."""
        whole, rest = _parted(kept.length)
        pages = -(-(capacity + self.room.width) // PAGE)
        if not self._slots or pages - whole > len(self._pages):
            raise NoRoomError("no room for a lane behind a kept state")
        slot = self._slots.pop()
        entry = LaneEntry(slot, capacity, self._ring(slot), self._places(slot))
        copies = self._share(kept, entry, whole, rest)
        entry.pages += [self._take() for _ in range(pages - len(entry.pages))]
        return entry, copies

    def _share(self, source: LaneEntry, target: LaneEntry, whole: int, rest: int) -> list[tuple[int, int]]:
        target.length = source.length
        target.pages = source.pages[:whole]
        for page in target.pages:
            self._sharers[page] += 1
        # Inputs that are missing before the first token stay missing.
        target.last = tuple(row if old >= 0 else -1 for row, old in zip(target.own, source.last, strict=False))
        if not rest:
            return []
        target.pages.append(self._take())
        return [(source.pages[whole], target.pages[whole])]

    def kept_bytes_pages(self, kept: LaneEntry) -> int:
        """Pages that closing a kept state would free."""
        return sum(self._sharers[page] == 1 for page in kept.pages)


def _parted(length: int) -> tuple[int, int]:
    """Pages that no lane behind so many tokens writes any more, and the positions behind them."""
    whole = max(0, length - 1) // PAGE
    return whole, length - whole * PAGE
