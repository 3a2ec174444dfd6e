"""What a stream sees of the record: places where its last ids occurred, and the ids that follow them.

Read by the engine's thread while another thread adds to the record and drops its oldest chunks. A place that has been
dropped meanwhile has no following ids; it is never an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Place(NamedTuple):
    """`length` ids before `at` equal the last `length` of the stream; `at` names the id that follows them."""

    length: int
    at: int


class Places(Protocol):
    """The reader's side of the record."""

    @property
    def era(self) -> int:
        """Changes when every place found so far has lost its meaning: the record was emptied, or renumbered."""
        ...

    def find(self, tokens: Sequence[int], most: int) -> list[Place]:
        """At most `most` places that match the last KEY_IDS of `tokens` or more, each with an id that follows.

        Longest match first, of equal ones the newest. Empty while the record loads, or below KEY_IDS tokens.
        """
        ...

    def advance(self, places: Sequence[Place], fresh: Sequence[int]) -> list[Place]:
        """Those places that `fresh` follows, moved behind it and that much longer, in the order given.

        A place with nothing left to follow it is dropped.
        """
        ...

    def following(self, at: int, count: int) -> tuple[int, ...]:
        """The ids from `at` on, at most `count`; fewer where the piece or what is published ends."""
        ...
