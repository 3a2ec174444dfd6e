"""Requests that wait for a lane: foreground before background, then in order of arrival.

Bounded, and nothing more: it knows no lanes, no clocks and no threads (its owner holds a lock around it). What was put
in comes out exactly once, by `pop` or by `remove`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class WaitingQueue(Generic[Item]):
    """At most `limit` items, each under an id of its own. Every operation but `position` and iterating is O(1)."""

    def __init__(self, limit: int) -> None:
        """`limit` >= 0 counts foreground and background items together; 0 lets nothing wait. Raises ValueError."""
        if limit < 0:
            raise ValueError(f"a queue cannot hold {limit} requests")
        self._limit = limit
        self._foreground: OrderedDict[str, Item] = OrderedDict()
        self._background: OrderedDict[str, Item] = OrderedDict()

    @property
    def limit(self) -> int:
        """The most items that may wait."""
        return self._limit

    @property
    def full(self) -> bool:
        """Whether nothing more may be put."""
        return len(self) >= self._limit

    def __len__(self) -> int:
        return len(self._foreground) + len(self._background)

    def __contains__(self, item_id: object) -> bool:
        return item_id in self._foreground or item_id in self._background

    def __iter__(self) -> Iterator[Item]:
        """Items in the order in which `pop` would give them."""
        yield from self._foreground.values()
        yield from self._background.values()

    def put(self, item_id: str, item: Item, *, background: bool = False) -> bool:
        """Let `item` wait behind those of its kind; False, and nothing changed, when the queue is full.

        Raises ValueError when `item_id` already waits.
        """
        if item_id in self:
            raise ValueError(f"request {item_id} already waits")
        if self.full:
            return False
        (self._background if background else self._foreground)[item_id] = item
        return True

    def peek(self) -> Item | None:
        """The item that `pop` would give; None when nothing waits."""
        return next(iter(self), None)

    def pop(self) -> Item | None:
        """Take the first item out; None when nothing waits."""
        line = self._foreground or self._background
        return line.popitem(last=False)[1] if line else None

    def remove(self, item_id: str) -> Item | None:
        """Take one item out wherever it stands; None when it does not wait."""
        line = self._foreground if item_id in self._foreground else self._background
        return line.pop(item_id, None)

    def position(self, item_id: str) -> int | None:
        """How many items are to be served before this one; None when it does not wait."""
        ids = (*self._foreground, *self._background)
        return ids.index(item_id) if item_id in self else None
