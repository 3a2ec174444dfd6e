"""Where the last ids of a stream occurred in the runs remembered so far: the plainest index that finds them all.

Keys are exact, so nothing is verified twice; every place of a key is looked at, up to a stated number of the newest.
"""

from __future__ import annotations

from collections.abc import Sequence

NEWEST = 64
REACH = 1024


class RunIndex:
    """Runs of ids by every `key` ids in them."""

    def __init__(self, key: int) -> None:
        self._key = key
        self._runs: list[tuple[int, ...]] = []
        self._places: dict[tuple[int, ...], list[tuple[int, int]]] = {}

    def remember(self, run: Sequence[int]) -> None:
        """Add a run; a place is where an id follows a key."""
        ids, number = tuple(run), len(self._runs)
        self._runs.append(ids)
        for at in range(self._key, len(ids)):
            self._places.setdefault(ids[at - self._key : at], []).append((number, at))

    def best(self, tokens: Sequence[int]) -> tuple[int, tuple[int, ...], int] | None:
        """(length, run, at) of the longest match of the last ids, of equal ones the newest; None without one."""
        found: tuple[int, tuple[int, ...], int] | None = None
        for number, at in reversed(self._places.get(tuple(tokens[-self._key :]), [])[-NEWEST:]):
            run = self._runs[number]
            length = self._length(tokens, run, at)
            if found is None or length > found[0]:
                found = (length, run, at)
        return found

    def _length(self, tokens: Sequence[int], run: tuple[int, ...], at: int) -> int:
        length, most = self._key, min(at, len(tokens), REACH)
        while length < most and run[at - length - 1] == tokens[-length - 1]:
            length += 1
        return length
