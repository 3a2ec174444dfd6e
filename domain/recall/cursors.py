"""The places of the record that match the end of one stream, followed from round to round.

Knows one stream's ids and the reader's side of the record. While a place is followed there is no search: the places
followed are exactly those that match longest. When the last of them parts from the stream inside a copy, the copy may
be resumed close by.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.domain.recall.places import Place, Places
from tensorfold.domain.recall.rates import RESUMED_LENGTHS
from tensorfold.domain.recall.resync import resumed


class Cursors:
    """Places followed for one stream, the longest first and of equal ones the newest."""

    def __init__(self, places: Places, most: int, resync_rounds: int) -> None:
        """At most `most` places are followed; a broken copy is looked for in `resync_rounds` calls of `follow`."""
        self._places = places
        self._most = most
        self._resync_rounds = resync_rounds
        self._era = places.era
        self._read = 0
        self._live: Sequence[Place] = ()
        self._seeks = 0
        # Set where a copy begins, and where it breaks.
        self._resumed: bool
        self._landed: bool
        self._broke: int

    @property
    def era(self) -> int:
        """The era that the places belong to."""
        return self._era

    @property
    def live(self) -> Sequence[Place]:
        """The places that match now."""
        return self._live

    @property
    def resumed(self) -> bool:
        """Whether the live copy was resumed after an edit and has not yet matched as many fresh ids as a key has."""
        return self._resumed

    def follow(self, tokens: Sequence[int]) -> bool:
        """Catch up with `tokens`; whether a copy begins here, or is resumed."""
        era = self._places.era
        if era != self._era or len(tokens) < self._read:
            self._era, self._live, self._seeks = era, (), 0
        fresh = tokens[self._read :]
        self._read = len(tokens)
        if self._live and fresh:
            self._advance(fresh)
        if not self._live:
            return self._begin(tokens)
        if self._resumed and self._live[0].length not in RESUMED_LENGTHS:
            self._resumed = False
            self._live = self._places.find(tokens, self._most) or self._live
        return False

    def _begin(self, tokens: Sequence[int]) -> bool:
        self._landed = self._resumed = False
        self._live = self._places.find(tokens, self._most)
        if self._live:
            self._seeks = 0
        elif self._seeks:
            self._seeks -= 1
            place = resumed(self._places, self._broke, tokens)
            if place is not None:
                self._live, self._resumed = (place,), True
        return bool(self._live)

    def _advance(self, fresh: Sequence[int]) -> None:
        before = self._live
        self._live = self._places.advance(before, fresh)
        if self._live:
            self._landed = True
            return
        right, at = max(((self._right(place, fresh), place.at) for place in before), key=_first)
        # A place that every fresh id followed did not break: its text ends there.
        if right < len(fresh) and (right or self._landed):
            self._broke, self._seeks = at + right, self._resync_rounds

    def _right(self, place: Place, fresh: Sequence[int]) -> int:
        """How many of the `fresh` ids followed a place."""
        ids = self._places.following(place.at, len(fresh))
        return next((i for i, (a, b) in enumerate(zip(ids, fresh, strict=False)) if a != b), len(ids))


def _first(pair: tuple[int, int]) -> int:
    return pair[0]
