"""The chunk files as their one writer sees them: pieces go behind the newest, the oldest make room, all can be removed.

A full chunk is settled before the next is begun, so that only the newest can lose anything. Chunks are removed before
one is made, so that the disk never holds more than the budget; a number is used once, also when its chunk is removed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_format import MOST_SEQUENCE, chunk_name
from tensorfold.adapters.filesystem.record_reading import chunk_sizes
from tensorfold.adapters.filesystem.record_survey import gone_on, shortened
from tensorfold.adapters.filesystem.record_tail import ChunkTail
from tensorfold.adapters.filesystem.record_trouble import TroubleError, cause, trouble
from tensorfold.domain.recall.layout import ID_BYTES, Ids, Part, seam


class RecordChunks:
    """Needs the lock and a checked identity. Calls that raise TroubleError may be repeated.

    `new_tail` makes the writer of an empty chunk. `first_sequence` numbers the first chunk of a folder that has none;
    each later one has the next number.
    """

    def __init__(
        self,
        files: RecordFiles,
        *,
        most_chunks: int,
        chunk_ids: int,
        new_tail: Callable[[int], ChunkTail],
        first_sequence: Callable[[], int],
        log: Callable[[str], None],
    ) -> None:
        self._files = files
        self._most_chunks = most_chunks
        self._most_bytes = chunk_ids * ID_BYTES
        self._new_tail = new_tail
        self._first_sequence = first_sequence
        self._log = log
        self._sizes: dict[int, int] = {}
        """Bytes of the chunks that take nothing more, oldest first; 0 for one that someone removed."""
        self._tail: ChunkTail | None = None
        self._highest = 0
        self._surveyed = False
        self._names_unsettled = False

    @property
    def bytes(self) -> int:
        """Bytes of all chunk files."""
        return sum(self._sizes.values()) + (self._tail.size if self._tail is not None else 0)

    def prepare(self, evicted: list[int]) -> None:
        """Bring the folder to a state that can be added to; quick once that is so."""
        if not self._surveyed:
            self._survey(evicted)
        if self._names_unsettled:
            self._settle_names()
        if self._tail is not None:
            try:
                self._tail.mend()
            except FileNotFoundError:
                self._seal(self._tail, 0)

    def add(self, piece: Ids, parts: list[Part], evicted: list[int]) -> None:
        """Append a piece. `parts` and `evicted` tell what was done, also up to a TroubleError."""
        self.prepare(evicted)
        vanished = 0
        while len(piece):
            tail = self._tail or self._begin(evicted)
            part, rest = seam(piece, tail.room)
            try:
                if len(part):
                    parts.append(tail.write(part))
                piece = rest
                if len(piece) or tail.room <= 0:
                    tail.settle()
                    self._seal(tail, tail.size)
            except FileNotFoundError:
                # Someone removed the newest chunk. Whoever holds its ids in memory keeps them; a new one is begun.
                self._seal(tail, 0)
                vanished += 1
                if vanished > 1:
                    raise TroubleError("chunk files vanish as soon as they are made") from None

    def due(self) -> bool:
        """Whether `settle` should be called now."""
        return self._names_unsettled or (self._tail is not None and self._tail.due())

    def settle(self) -> None:
        """Make everything added so far durable."""
        if self._names_unsettled:
            self._settle_names()
        if self._tail is not None:
            try:
                self._tail.settle()
            except FileNotFoundError:
                self._seal(self._tail, 0)

    def clear(self) -> str:
        """Remove every chunk file; the first that stayed with the cause, or nothing."""
        with trouble("the record's folder could not be listed"):
            found = chunk_sizes(self._files)
        self._highest = max([self._highest, *found])
        self._sizes, self._tail, stayed = {}, None, ""
        for sequence, size in found.items():
            try:
                self._remove(sequence)
            except OSError as error:
                self._sizes[sequence] = size
                stayed = stayed or f"{chunk_name(sequence)} could not be removed: {cause(error)}"
        try:
            self._settle_names()
        except TroubleError as error:
            stayed = stayed or error.reason
        return stayed

    def _remove(self, sequence: int) -> None:
        """Raises OSError, but not for a file that is gone already."""
        self._names_unsettled = True
        with suppress(FileNotFoundError):
            self._files.remove(chunk_name(sequence))

    def _evict(self, keep: int, evicted: list[int]) -> None:
        for sequence in list(self._sizes)[: max(0, len(self._sizes) - keep)]:
            with trouble(f"{chunk_name(sequence)} could not be removed to make room"):
                self._remove(sequence)
            del self._sizes[sequence]
            evicted.append(sequence)

    def _seal(self, tail: ChunkTail, size: int) -> None:
        """The tail takes nothing more; size 0: it is gone."""
        self._sizes[tail.sequence] = size
        self._tail = None

    def _begin(self, evicted: list[int]) -> ChunkTail:
        """A new chunk, after the oldest made room for it."""
        self._evict(self._most_chunks - 1, evicted)
        sequence = self._next_sequence()
        with trouble("a new chunk file could not be made"):
            while not self._made(sequence):
                sequence += 1
        self._highest, self._names_unsettled = sequence, True
        self._tail = self._new_tail(sequence)
        self._settle_names()
        return self._tail

    def _made(self, sequence: int) -> bool:
        """Whether the name was free; something that is no chunk may have it."""
        if sequence > MOST_SEQUENCE:
            raise TroubleError("the numbers of chunk files are used up; empty the record to begin again")
        try:
            self._files.create(chunk_name(sequence))
        except FileExistsError:
            return False
        return True

    def _next_sequence(self) -> int:
        if self._sizes:
            return self._highest + 1
        first = self._first_sequence()
        return max(first, self._highest + 1) if self._highest < MOST_SEQUENCE else first

    def _settle_names(self) -> None:
        with trouble("the names of the chunk files could not be made durable"), suppress(FileNotFoundError):
            self._files.sync_folder()  # Not found: the folder itself is gone, and every name with it.
        self._names_unsettled = False

    def _survey(self, evicted: list[int]) -> None:
        """See what earlier servers left, keep to the budget, and go on behind the newest chunk where that can be."""
        with trouble("the record's folder could not be listed"):
            self._sizes = chunk_sizes(self._files)
        self._highest = max([self._highest, *self._sizes])
        self._evict(self._most_chunks, evicted)
        self._sizes = shortened(self._files, self._sizes, self._most_bytes, self._log)
        if self._sizes:
            last = list(self._sizes)[-1]
            size, tail = min(self._sizes[last], self._most_bytes), self._new_tail(last)
            if gone_on(tail, size, self._log):
                self._tail = tail
                del self._sizes[last]
            elif tail.size:
                self._sizes[last] -= size - tail.size  # A last value was cut off, and then there was no room.
        self._surveyed = True
