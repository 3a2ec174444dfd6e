"""The record in memory, as the thread that writes it sees it: chunks come as they are read, grow, and go.

Knows ids only: no file, no thread. What the reader's thread may meet meanwhile is in `reading` and `chains`. Chunks in
memory are never more than the budget allows, whatever comes.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from tensorfold.domain.recall.chains import Chains
from tensorfold.domain.recall.chunks import CHUNK_MEMORY_BYTES, Chunk
from tensorfold.domain.recall.layout import (
    CHUNK_BYTES,
    CHUNK_IDS,
    ID_BYTES,
    KEY_IDS,
    LEAST_CHUNKS,
    MOST_CHUNKS,
    SEPARATOR,
    Ids,
    Part,
)
from tensorfold.domain.recall.lengths import common_start
from tensorfold.domain.recall.reading import MOST_STEPS, RecordReader

IDS_PER_ENTRY = 8
"""Ids of budget for each entry of the table."""
MOST_CANDIDATES = 64
"""Places of one key that are compared with a run: of a text that is everywhere the newest."""


class Held(NamedTuple):
    """`start` to `stop` of a run are ids that the record holds, none when they are equal. `cut`: it may hold more."""

    start: int
    stop: int
    cut: bool


class RecordIndex(RecordReader):
    """The record of at most `budget_bytes` on disk: places for a reader, filled and emptied as the record is.

    `load`, `add`, `drop`, `clear` and `held` belong to the thread that writes; the figures are anyone's.
    """

    def __init__(self, budget_bytes: int, vocabulary: int, *, whole: bool = True) -> None:
        """Takes the table's memory, an eighth of the budget. Raises ValueError outside LEAST_CHUNKS to MOST_CHUNKS.

        Nothing is found before it is `whole`, which whoever fills it says.
        """
        if not LEAST_CHUNKS * CHUNK_BYTES <= budget_bytes <= MOST_CHUNKS * CHUNK_BYTES:
            raise ValueError(f"a record of {budget_bytes} bytes is outside {LEAST_CHUNKS} to {MOST_CHUNKS} chunks")
        super().__init__(Chains(budget_bytes // (ID_BYTES * IDS_PER_ENTRY)), vocabulary, whole)
        self._most_chunks = budget_bytes // CHUNK_BYTES
        self._newest: Chunk | None = None
        self._number = 0
        self._ids = 0

    @property
    def ids(self) -> int:
        """Ids held, separators not counted."""
        return self._ids

    @property
    def chunks(self) -> int:
        """Chunks held."""
        return len(self._chains.live)

    @property
    def memory_bytes(self) -> int:
        """Memory of the chunks, each whole from its first id, and of the table."""
        return self.chunks * CHUNK_MEMORY_BYTES + self._chains.table_bytes

    def load(self, sequence: int, ids: Ids) -> None:
        """Take a chunk as it was read, separators included; what is no id of the vocabulary becomes one.

        Chunks come oldest first: raises ValueError unless `sequence` is above all that are held.
        """
        if len(ids):
            chunk = self._begin(sequence)
            self._write(chunk, 0, ids[:CHUNK_IDS])
            self._publish(chunk, min(len(ids), CHUNK_IDS))

    def add(self, part: Part) -> None:
        """Take a part that was appended to the newest chunk or begins a later one. What was left before it parts it.

        Raises ValueError when its place is not free, or touches the piece before it.
        """
        chunk = self._newest if self._newest and self._newest.sequence == part.sequence else None
        published = chunk.published if chunk else 0
        offset, length = part.offset, len(part.ids)
        touches = chunk is not None and 0 < offset == published and chunk.id_at[offset - 1] != SEPARATOR
        if not published <= offset <= CHUNK_IDS - length or touches:
            raise ValueError(f"{length} ids at {offset} do not fit a chunk of which {published} are taken")
        chunk = chunk or self._begin(part.sequence)
        chunk.ids[published:offset] = SEPARATOR
        self._write(chunk, offset, part.ids)
        self._publish(chunk, offset + length)

    def drop(self, sequences: Iterable[int]) -> None:
        """Forget chunks, the oldest; one that is not held is fine."""
        gone = set(sequences)
        for chunk in [chunk for chunk in self._chains.live.values() if chunk.sequence in gone]:
            self._drop(chunk)

    def clear(self) -> None:
        """Forget everything. The era changes last, so that whatever is found in the new one is new."""
        self._chains.clear()
        self._newest = None
        self._ids = 0
        self._era += 1

    def held(self, run: Ids, at: int, since: int) -> Held:
        """What the record holds around the KEY_IDS ids from `at` of a run without separators, from `since` on.

        Several places may hold a part each; all have those KEY_IDS ids, by which a copy passes from one to another.
        """
        key, run_at = run[at : at + KEY_IDS], run.data
        wanted = key.tobytes()
        start, stop, seen, left = at, at, 0, MOST_CANDIDATES
        for chunk, end in chain.from_iterable(self._chains.walk(key.tolist(), MOST_STEPS, 0)):
            seen += 1
            if chunk.id_at[end - KEY_IDS : end].tobytes() != wanted:
                continue
            # Most places hold no more than what is known: one id tells, and the others are not compared at length.
            before, after = end - KEY_IDS - (at - start), end + stop - (at + KEY_IDS)
            if start > since and before > 0 and chunk.id_at[before - 1] == run_at[start - 1]:
                start = min(start, at - common_start(run[since:at][::-1], chunk.ids[: end - KEY_IDS][::-1]))
            if stop < len(run) and after < chunk.published and chunk.id_at[after] == run_at[stop]:
                more = common_start(run[at + KEY_IDS :], chunk.ids[end : chunk.published])
                stop = max(stop, at + KEY_IDS + more)
            left -= 1
            if not left:
                break
        return Held(start, stop, not left or seen == MOST_STEPS)

    def _begin(self, sequence: int) -> Chunk:
        """A new chunk, empty yet; the oldest goes where the budget has no room for both."""
        if self._newest and sequence <= self._newest.sequence:
            raise ValueError(f"chunk {sequence} comes after chunk {self._newest.sequence}")
        live = self._chains.live
        while len(live) >= self._most_chunks:
            self._drop(live[min(live)])
        self._number += 1
        self._newest = Chunk(sequence, self._number)
        self._chains.admit(self._newest)
        return self._newest

    def _write(self, chunk: Chunk, offset: int, ids: Ids) -> None:
        chunk.write(ids, offset, self.vocabulary)
        self._chains.insert(chunk, offset, offset + len(ids))

    def _publish(self, chunk: Chunk, published: int) -> None:
        before = chunk.tokens
        chunk.publish(published)
        self._ids += chunk.tokens - before

    def _drop(self, chunk: Chunk) -> None:
        del self._chains.live[chunk.number]
        self._ids -= chunk.tokens
        if chunk is self._newest:
            self._newest = None
