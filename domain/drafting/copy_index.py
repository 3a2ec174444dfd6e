"""Where the end of a stream's tokens occurred before: the index behind copies from the stream's own context.

Knows token ids only. It is append-only. Ends of equal runs of `enter` ids are chained, newest first; the places found
last are kept as live cursors, advanced with the tokens, so that a running copy costs no search. The best place is the
one a plain search over all earlier places would give: the longest match, and of equal ones the most recent.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import cycle, islice
from typing import NamedTuple

import numpy as np

# A polynomial hash modulo 2**60 of the last ids: cheap to roll in Python integers, and the same in wrapping uint64.
_FACTOR = 0x2545F491
_MASK = (1 << 60) - 1
LEAST_FOLLOWING = 2
"""Ids that must follow a place: a copy of one id is not worth a window of its own."""


class Match(NamedTuple):
    """The last `length` ids of the context also end `distance` ids before its end."""

    length: int
    distance: int


class CopyIndex:
    """Finds earlier places that match the end of a growing sequence of ids.

    A place at distance d matches with length k when the last k ids equal the k ids that end d ids earlier. Places with
    d >= 2 and k >= `enter` count. Bounds, so that no text makes a round slow: a search looks at the `walk` newest
    places and measures matches up to `reach` ids; its `cursors` best ones stay live. A live match of length k has
    k + 1 after the next id if that id follows it too, and is dropped otherwise; only when all are dropped is there a
    new search. This loses nothing: whatever was left out was shorter, or equal and older, than every live cursor, and
    stays so while one lives, since all matches that live grow alike and new ones begin at `enter`.

    Memory: about 100 bytes for each id. Time: a search costs at most `walk` comparisons, any other id is O(1).
    """

    __slots__ = ("_cursors", "_enter", "_hash", "_heads", "_leaving", "_length", "_links", "_live", "_reach", "_walk")

    def __init__(self, *, enter: int = 8, cursors: int = 16, walk: int = 64, reach: int = 1024) -> None:
        """Raises ValueError when a bound is below 1, or `reach` below `enter`."""
        if min(enter, cursors, walk) < 1 or reach < enter:
            raise ValueError(f"a copy index cannot have enter {enter}, cursors {cursors}, walk {walk}, reach {reach}")
        self._enter = enter
        self._cursors = cursors
        self._walk = walk
        self._reach = reach
        self._length = 0
        self._leaving = pow(_FACTOR, enter, _MASK + 1)
        self._heads: dict[int, int] = {}
        # Set by the first read. `_links[end]` is the newest earlier end of the same run of ids; 0 for none, as ends
        # begin at `enter`. `_hash` is that of the last run.
        self._links: array[int]
        self._hash: int
        self._live: list[Match] = []

    def __len__(self) -> int:
        """Ids read so far."""
        return self._length

    def read(self, tokens: Sequence[int]) -> None:
        """Take in what was appended to `tokens` since the last call.

        Raises ValueError when `tokens` is shorter than what was read.
        """
        start, stop = self._length, len(tokens)
        if stop < start:
            raise ValueError(f"a copy index that read {start} ids was given {stop}")
        if stop == start:
            return
        if start == 0:
            self._build(tokens)
        else:
            self._append(tokens, start, stop)
        self._length = stop
        if self._live:
            self._advance(tokens, start, stop)
        if not self._live and self._links[stop]:
            self._live = self._search(tokens, stop)

    def best(self) -> Match | None:
        """The longest match, the most recent of equal ones; None when fewer than `enter` ids match anywhere."""
        return self._live[0] if self._live else None

    def matches(self) -> tuple[Match, ...]:
        """Every live match, best first."""
        return tuple(self._live)

    def _build(self, tokens: Sequence[int]) -> None:
        """The first read, which is a whole prompt, in array operations."""
        enter, stop = self._enter, len(tokens)
        runs = stop - enter + 1
        if runs < 1:
            self._links = array("i", bytes(4 * (stop + 1)))
            self._hash = _hash_of(tokens)
            return
        ids = np.array(tokens, dtype=np.uint64)
        hashes = np.zeros(runs, dtype=np.uint64)
        for offset in range(enter):
            hashes *= np.uint64(_FACTOR)
            hashes += ids[offset : offset + runs]
        hashes &= np.uint64(_MASK)
        order = np.argsort(hashes, kind="stable")
        later, earlier = order[1:], order[:-1]
        same = hashes[later] == hashes[earlier]
        links = np.zeros(stop + 1, dtype=np.intc)
        links[later[same] + enter] = earlier[same] + enter
        self._links = array("i", links.tobytes())
        self._heads = dict(zip(hashes.tolist(), range(enter, stop + 1), strict=True))
        self._hash = int(hashes[-1])

    def _append(self, tokens: Sequence[int], start: int, stop: int) -> None:
        enter, leaving, heads, links, rolled = self._enter, self._leaving, self._heads, self._links, self._hash
        for at in range(start, stop):
            if at >= enter:
                rolled = (rolled * _FACTOR + tokens[at] - tokens[at - enter] * leaving) & _MASK
            else:
                rolled = (rolled * _FACTOR + tokens[at]) & _MASK
            if at + 1 >= enter:
                links.append(heads.get(rolled, 0))
                heads[rolled] = at + 1
            else:
                links.append(0)
        self._hash = rolled

    def _advance(self, tokens: Sequence[int], start: int, stop: int) -> None:
        added = stop - start
        if added == 1:
            last = tokens[start]
            self._live = [Match(k + 1, d) for k, d in self._live if tokens[start - d] == last]
        else:
            fresh = tokens[start:]
            self._live = [Match(k + added, d) for k, d in self._live if tokens[start - d : stop - d] == fresh]

    def _search(self, tokens: Sequence[int], stop: int) -> list[Match]:
        found: list[Match] = []
        end, left = self._links[stop], self._walk
        while end and left:
            if stop - end >= LEAST_FOLLOWING:
                left -= 1
                length = _shared_suffix(tokens, end, stop, self._enter, min(end, self._reach))
                if length:
                    found.append(Match(length, stop - end))
            end = self._links[end]
        # The sort is stable, and the walk went from new to old.
        found.sort(key=_length_of, reverse=True)
        del found[self._cursors :]
        return found


def continuation(tokens: Sequence[int], distance: int, count: int) -> tuple[int, ...]:
    """The `count` ids that follow the place `distance` ids before the end.

    A copy that reaches the end goes on in what it has copied, so a repeating text is continued at any width.
    """
    start = len(tokens) - distance
    return tuple(islice(cycle(tokens[start : start + count]), count))


def _shared_suffix(tokens: Sequence[int], end: int, stop: int, enter: int, most: int) -> int:
    """How many ids before `end` equal those before `stop`, at most `most`; 0 when fewer than `enter` do."""
    if tokens[end - enter : end] != tokens[stop - enter :]:
        return 0
    length = enter
    # Most places differ at once, so the first ids are compared singly and only then block by block.
    while length < most and tokens[end - length - 1] == tokens[stop - length - 1]:
        length += 1
        if length == 2 * enter:
            return _gallop(tokens, end, stop, length, most)
    return length


def _gallop(tokens: Sequence[int], end: int, stop: int, length: int, most: int) -> int:
    """Extend a match of `length` ids: by blocks that double while they agree, then by halving the one that did not."""
    step = length
    while length < most:
        reached = min(length + step, most)
        if tokens[end - reached : end - length] != tokens[stop - reached : stop - length]:
            break
        length = reached
        step *= 2
    else:
        return length
    while reached - length > 1:
        middle = (length + reached) // 2
        if tokens[end - middle : end - length] == tokens[stop - middle : stop - length]:
            length = middle
        else:
            reached = middle
    return length


def _hash_of(tokens: Sequence[int]) -> int:
    value = 0
    for token in tokens:
        value = (value * _FACTOR + token) & _MASK
    return value


def _length_of(match: Match) -> int:
    return match.length
