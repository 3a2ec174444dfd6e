"""The newest chunk file, to which pieces are appended: one write a piece, cut off again where it failed.

What is lost when a machine stops: whatever was appended since the last `settle`, which `due` asks for when nothing was
appended for IDLE_S seconds, or MOST_UNSETTLED_S seconds after the first unsettled piece. A process that is killed loses
the piece it was writing, in part or whole; what an earlier server wrote is settled when the file is taken up again.

A failed write is cut off, and the cut is made durable before anything else is written there: otherwise a power cut
could leave half of the failed piece beside half of the next one, and join texts that nobody wrote together.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import numpy as np

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_format import chunk_name, decode, encode
from tensorfold.adapters.filesystem.record_trouble import TroubleError, trouble
from tensorfold.domain.recall.layout import ID_BYTES, SEPARATOR, Ids, Part

IDLE_S = 5.0
MOST_UNSETTLED_S = 10.0

_END = np.array([SEPARATOR], dtype=np.int32)


class ChunkTail:
    """Chunk `sequence` of `size` bytes. `ended`: what is there ends as a piece does.

    Every call but `due` may raise FileNotFoundError, when someone removed the file.
    """

    def __init__(
        self, files: RecordFiles, vocabulary: int, chunk_ids: int, monotonic: Callable[[], float], sequence: int
    ) -> None:
        """An empty chunk, whose file was just made."""
        self.sequence = sequence
        self.name = chunk_name(sequence)
        self.size = 0
        self._files = files
        self._vocabulary = vocabulary
        self._chunk_ids = chunk_ids
        self._monotonic = monotonic
        self._ended = True
        self._torn = False
        self._unsettled_since: float | None = None
        self._written_at = 0.0

    def take_up(self, size: int) -> None:
        """Go on behind the `size` bytes that an earlier server left. Raises OSError where that cannot be."""
        whole = size - size % ID_BYTES
        ids = decode(self._files.read(self.name, whole), self._vocabulary)
        if whole != size:
            self._files.truncate(self.name, whole)
        self._files.sync(self.name)
        self.size = whole
        self._ended = not len(ids) or bool(ids[-1] == SEPARATOR)

    @property
    def room(self) -> int:
        """Ids of a piece that still fit; one place is kept for an end that was lost."""
        return self._chunk_ids - self.size // ID_BYTES - (not self._ended)

    def write(self, ids: Ids) -> Part:
        """Append at most `room` ids, their end where the chunk has a place for it, and before them a lost end.

        Raises TroubleError when they are not all there; then nothing of them is.
        """
        self.mend()
        offset = self.size // ID_BYTES + (not self._ended)
        values = ids if self._ended else np.concatenate([_END, ids])
        if self.size // ID_BYTES + len(values) < self._chunk_ids:
            values = np.concatenate([values, _END])
        self._append(encode(values, self._vocabulary))
        self._ended = bool(values[-1] == SEPARATOR)
        return Part(self.sequence, offset, ids)

    def mend(self) -> None:
        """Cut off what a failed write left. Raises TroubleError, and has then to be repeated."""
        if self._torn:
            with trouble(f"{self.name} could not be cut back", gone=True):
                self._files.truncate(self.name, self.size)
                self._files.sync(self.name)
            self._torn = False

    def due(self) -> bool:
        """Whether `settle` should be called now."""
        if self._unsettled_since is None:
            return False
        now = self._monotonic()
        return now - self._written_at >= IDLE_S or now - self._unsettled_since >= MOST_UNSETTLED_S

    def settle(self) -> None:
        """Make everything appended so far durable. Raises TroubleError."""
        if self._unsettled_since is not None:
            with trouble(f"{self.name} could not be made durable", gone=True):
                self._files.sync(self.name)
            self._unsettled_since = None

    def _append(self, data: bytes) -> None:
        self._torn = True
        try:
            with trouble(f"{self.name} could not be written", gone=True):
                if self._files.append(self.name, data) < len(data):
                    raise TroubleError(f"{self.name} could not be written: the disk took a part of it")
        except TroubleError:
            # Where this fails too, it is tried again before the next piece.
            with suppress(TroubleError):
                self.mend()
            raise
        self._torn = False
        self.size += len(data)
        self._written_at = self._monotonic()
        if self._unsettled_since is None:
            self._unsettled_since = self._written_at
