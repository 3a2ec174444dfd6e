"""Edits that a stream made to what it copies, remembered so that it can make them again: a name changed everywhere.

Knows ids of one stream and of the record it copies from. An edit is known by the id of the record at which the copy
broke. What it foretells is verified like any other draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

MOST_EDITS = 64
"""Edits remembered for a stream; the one made longest ago goes first."""
EDIT_IDS = 16
"""Ids of the longest edit that is remembered, on either side."""
SURE = 2
"""Times an edit was made, more than it was left out, before it is made unasked."""


class Edit(NamedTuple):
    """The stream had `inserted` where the record has `removed`."""

    removed: tuple[int, ...]
    inserted: tuple[int, ...]


class Step(NamedTuple):
    """A draft of an edited copy.

    Behind it the copy stands `behind` ids of the record further on, `ahead` ids of an edit come before those, and the
    last `length` ids are the record's.
    """

    token: int
    behind: int
    ahead: tuple[int, ...]
    length: int


class Edits:
    """The edits of one stream, by the id of the record that was not followed."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Edit, int]] = {}

    def __bool__(self) -> bool:
        """Whether any edit is known."""
        return bool(self._made)

    def made(self, key: int, edit: Edit) -> None:
        """The stream made `edit` where the record goes on with `key`; another one known there is forgotten."""
        if max(len(edit.removed), len(edit.inserted)) > EDIT_IDS:
            return
        known, times = self._made.pop(key, (edit, 0))
        self._made[key] = (edit, times + 1 if known == edit else 1)
        if len(self._made) > MOST_EDITS:
            del self._made[next(iter(self._made))]

    def passed(self, ids: Sequence[int]) -> None:
        """The stream followed `ids` of the record as they are."""
        for key in ids if self._made else ():
            if key in self._made:
                edit, times = self._made.pop(key)
                if times:
                    self._made[key] = (edit, times - 1)

    def begun(self, ids: Sequence[int], fresh: Sequence[int]) -> Edit | None:
        """The known edit that the `fresh` ids begin, where the record has `ids`; None when it is another one."""
        edit, _ = self._made.get(ids[0], (None, 0)) if ids else (None, 0)
        if edit is None or not fresh or tuple(fresh) != edit.inserted[: len(fresh)] or not _fits(edit, ids, 0):
            return None
        return edit

    def sure_in(self, ids: Sequence[int]) -> bool:
        """Whether an edit that is made unasked may be among `ids` of the record."""
        sure = {key for key, (edit, times) in self._made.items() if times >= SURE and edit.removed}
        return not sure.isdisjoint(ids)

    def applied(self, ids: Sequence[int], ahead: tuple[int, ...], length: int, count: int) -> list[Step]:
        """At most `count` drafts of a copy of `ids`, sure edits made.

        `ahead` comes first, and `length` ids before were the record's.
        """
        steps: list[Step] = []
        at = 0
        _insert(steps, ahead, at)
        length = 0 if ahead else length
        while len(steps) < count and at < len(ids):
            edit, times = self._made.get(ids[at], (None, 0))
            if edit is not None and times >= SURE and edit.removed and _fits(edit, ids, at):
                at += len(edit.removed)
                _insert(steps, edit.inserted, at)
                length = 0
            else:
                at, length = at + 1, length + 1
                steps.append(Step(ids[at - 1], at, (), length))
        return steps[:count]


def _insert(steps: list[Step], ids: tuple[int, ...], at: int) -> None:
    steps += (Step(token, at, ids[done:], 0) for done, token in enumerate(ids, start=1))


def _fits(edit: Edit, ids: Sequence[int], at: int) -> bool:
    """Whether what the edit removes stands at `at`, with an id behind it."""
    behind = at + len(edit.removed)
    return behind < len(ids) and tuple(ids[at:behind]) == edit.removed
