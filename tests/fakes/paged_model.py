"""A chunky model whose lanes are pages, places and slots of a room, counted by the CUDA backend's own book.

What cannot be had raises CapacityError, as on a card; `free` is what nobody holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensorfold.adapters.cuda.lane_book import LaneBook, LaneEntry, NoRoomError
from tensorfold.application.ports.target_model import CapacityError, Lane
from tensorfold.domain.memory.cuda_holding import Room
from tests.fakes.chunky_model import ChunkyModel
from tests.fakes.hash_law import HashLaw


class PagedModel(ChunkyModel):
    """Lanes within `pools`; their states are kept as forks."""

    def __init__(self, law: HashLaw, pools: Room, **options: Any) -> None:
        super().__init__(law, resume="prompt_end", **options)
        self.book = LaneBook(pools)
        self._entries: dict[Lane, LaneEntry] = {}

    @property
    def free(self) -> tuple[int, int, int]:
        """Pages, lanes and kept ends that nobody holds."""
        return self.book.free_pages, self.book.free_slots, self.book.free_kept

    def open(self, capacity: int) -> Lane:
        """As the port says."""
        return self._entered(lambda: self.book.open(capacity), lambda: super(PagedModel, self).open(capacity))

    def fork(self, lane: Lane) -> Lane:
        """As the port says."""
        return self._entered(lambda: self.book.keep(self._at(lane))[0], lambda: super(PagedModel, self).fork(lane))

    def resume(self, lane: Lane, capacity: int) -> Lane:
        """As the port says."""
        return self._entered(
            lambda: self.book.resume(self._at(lane), capacity)[0],
            lambda: super(PagedModel, self).resume(lane, capacity),
        )

    def close(self, lane: Lane) -> None:
        """As the port says."""
        super().close(lane)
        self.book.close(self._entries.pop(lane))

    def _at(self, lane: Lane) -> LaneEntry:
        entry = self._entries[lane]
        entry.length = self._lanes[lane].length
        return entry

    def _entered(self, take: Callable[[], LaneEntry], make: Callable[[], Lane]) -> Lane:
        try:
            entry = take()
        except NoRoomError as short:
            raise CapacityError(f"{short}.") from None
        lane = make()
        self._entries[lane] = entry
        return lane
