"""The places of the record that match the end of one stream, followed from round to round.

Knows one stream's ids and the reader's side of the record. While a place is followed there is no search: the places
followed are exactly those that match longest. When the last of them parts from the stream inside a copy, the copy may
be resumed close by; edits made so far are made again where the record is as it was there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tensorfold.domain.recall.edits import EDIT_IDS, Edit, Edits, Step
from tensorfold.domain.recall.places import Place, Places
from tensorfold.domain.recall.rates import RESUMED_LENGTHS
from tensorfold.domain.recall.resync import NOWHERE, Break, around, resumed


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
        self._edits = Edits()
        # Ids of an edit that come before what follows the first place.
        self._ahead: tuple[int, ...] = ()
        self._seeks = 0
        self._broken = NOWHERE
        # Set where a copy begins.
        self._resumed: bool
        self._landed: bool

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
        """Whether the live copy goes on behind an edit and has not yet matched as many fresh ids as a key has."""
        return self._resumed

    def follow(self, tokens: Sequence[int]) -> bool:
        """Catch up with `tokens`; whether a copy begins here, or is resumed."""
        era = self._places.era
        if era != self._era or len(tokens) < self._read:
            self._era, self._live, self._seeks = era, (), 0
            self._edits, self._ahead, self._broken = Edits(), (), NOWHERE
        fresh = tokens[self._read :]
        self._read = len(tokens)
        if self._live and fresh:
            self._advance(fresh)
        if not self._live:
            return self._begin(tokens)
        if self._resumed and self._live[0].length >= RESUMED_LENGTHS.stop:
            self._resumed = False
            self._live = self._places.find(tokens, self._most) or self._live
        return False

    def following(self, place: Place, count: int) -> tuple[int, ...]:
        """At most `count` ids that a live place foretells, the stream's edits made in those of the first."""
        steps = self._steps(place, count) if place is self._live[0] else []
        return tuple(step.token for step in steps) if steps else self._places.following(place.at, count)

    def _begin(self, tokens: Sequence[int]) -> bool:
        self._landed = self._resumed = False
        self._live = self._places.find(tokens, self._most)
        if self._live:
            self._seeks = 0
        elif self._seeks:
            self._seeks -= 1
            self._resume(tokens)
        return bool(self._live)

    def _resume(self, tokens: Sequence[int]) -> None:
        """Go on with a broken copy: in a known edit, or behind one."""
        broken = self._broken
        fresh = tuple(tokens[broken.tokens :])
        edit = self._edits.begun(broken.until(broken.at + EDIT_IDS + 1), fresh)
        if edit is not None:
            place = Place(0, broken.start + broken.at + len(edit.removed))
            self._ahead = edit.inserted[len(fresh) :]
        else:
            found = resumed(broken, tokens)
            if found is None:
                return
            edit = _edit(broken, fresh, found.length, found.behind)
            place = Place(found.length, broken.start + found.behind)
        if edit is not None:
            self._edits.made(int(broken.ids[broken.at]), edit)
        self._live, self._resumed = (place,), True

    def _advance(self, fresh: Sequence[int]) -> None:
        before, ahead = self._live, self._ahead
        if not ahead:
            self._live = self._places.advance(before, fresh)
            if self._live:
                self._edits.passed(fresh)
                self._landed = True
                return
        best = before[0]
        steps = self._steps(best, len(fresh) + 1)
        right = _agreeing((step.token for step in steps), fresh)
        if right == len(fresh) < len(steps):
            step = steps[right - 1]
            self._live, self._ahead = (Place(step.length, best.at + step.behind),), step.ahead
            self._landed = self._resumed = True
            return
        self._live, self._ahead = (), ()
        at = best.at + (steps[right - 1].behind if right else 0)
        if not ahead:
            plain, furthest = max(((self._right(place, fresh), place.at) for place in before), key=_first)
            right, at = max((plain, furthest + plain), (right, at), key=_first)
        # A place that every fresh id followed did not break: its text ends there.
        if right < len(fresh) and (right or self._landed):
            self._broken = around(self._places, at, self._read - len(fresh) + right)
            self._seeks = self._resync_rounds

    def _steps(self, place: Place, count: int) -> list[Step]:
        """At most `count` drafts from the first place, the stream's edits made; none where no edit is to be made."""
        if not self._ahead and not self._edits:
            return []
        # An edit may leave out more than it puts in.
        ids = self._places.following(place.at, 2 * count + EDIT_IDS)
        if not self._ahead and not self._edits.sure_in(ids):
            return []
        return self._edits.applied(ids, self._ahead, place.length, count)

    def _right(self, place: Place, fresh: Sequence[int]) -> int:
        """How many of the `fresh` ids followed a place."""
        return _agreeing(self._places.following(place.at, len(fresh)), fresh)


def _edit(broken: Break, fresh: tuple[int, ...], length: int, behind: int) -> Edit | None:
    """What was done between a break and the place behind which `length` ids match again; None where it is not clear."""
    if behind - length < broken.at or len(fresh) < length:
        return None
    removed, inserted = broken.until(behind - length), fresh[: len(fresh) - length]
    while removed and inserted and removed[-1] == inserted[-1]:
        removed, inserted = removed[:-1], inserted[:-1]
    return Edit(removed, inserted) if removed or inserted else None


def _agreeing(ids: Iterable[int], fresh: Sequence[int]) -> int:
    """How many ids, from the first, are the same."""
    count = 0
    for one, other in zip(ids, fresh, strict=False):
        if one != other:
            break
        count += 1
    return count


def _first(pair: tuple[int, int]) -> int:
    return pair[0]
