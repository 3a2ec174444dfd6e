"""Which streams take part in the next shared round, when not all of them fit.

Those served longest ago go first, so every live stream is served within ceil(streams / streams per round) rounds, and
no two that need as many rows get ahead of each other by more than one turn. Knows ids and row counts only.
"""

from __future__ import annotations

from collections.abc import Sequence


class TurnOrder:
    """Takes turns within `max_streams` streams and `batch_rows` rows a round.

    A stream that was not there in the round before counts as just served: newcomers line up behind those that wait, so
    a flow of them holds nobody up. While everything fits, a round costs O(1) bookkeeping.
    """

    def __init__(self, max_streams: int, batch_rows: int) -> None:
        """Raises ValueError when a bound is below 1."""
        if max_streams < 1 or batch_rows < 1:
            raise ValueError(f"a round cannot have {max_streams} streams and {batch_rows} rows")
        self._max_streams = max_streams
        self._batch_rows = batch_rows
        # Turns are numbered. Numbering each stream's own, not the round's, keeps those of one round in the order in
        # which they had waited: by index alone, the first of three streams would join every round of two.
        self._turns = 0
        self._last: dict[int, int] = {}

    def take(self, ids: Sequence[int], rows: Sequence[int]) -> tuple[int, ...]:
        """Indices, ascending, of the streams of the next round.

        `ids` names each live stream (distinct ints) and `rows` what it must have: its pending and forced rows. Streams
        are taken from the one served longest ago, of equal ones by index, up to the first that does not fit; the first
        is always taken, however many rows it must have. Raises ValueError when the lengths differ.
        """
        if len(ids) != len(rows):
            raise ValueError(f"{len(ids)} streams came with {len(rows)} row counts")
        if len(ids) <= self._max_streams and sum(rows) <= self._batch_rows:
            self._last.clear()
            return tuple(range(len(ids)))
        last = [self._last.get(stream, self._turns) for stream in ids]
        taken = self._fitting(sorted(range(len(ids)), key=last.__getitem__), rows)
        self._last = dict(zip(ids, last, strict=True))
        for index in taken:
            self._turns += 1
            self._last[ids[index]] = self._turns
        return tuple(sorted(taken))

    def _fitting(self, order: Sequence[int], rows: Sequence[int]) -> list[int]:
        taken: list[int] = []
        left = self._batch_rows
        for index in order[: self._max_streams]:
            left -= rows[index]
            if left < 0 and taken:
                break
            taken.append(index)
        return taken
