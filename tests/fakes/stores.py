"""What a disk would keep, kept in memory: the record of ids and lane snapshots. Several stores may share one folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.stores import (
    Appended,
    RecordState,
    Snapshot,
    SnapshotKind,
    StoredChunk,
    StoreState,
)
from tensorfold.application.ports.target_model import LaneImage
from tensorfold.domain.recall.layout import ID_BYTES, SEPARATOR, Ids, Part, seam
from tests.fakes.misuse import MisuseError


@dataclass(slots=True)
class FakeRecordFolder:
    """A folder that outlives the stores on it. `writer` is the store that holds its lock.

    `chunks` holds values by sequence number, separators included. `tokenizer` is the one that wrote it. While `trouble`
    says something nothing can be added; chunks in `stuck` cannot be removed. `last` is the highest number ever used.
    """

    chunks: dict[int, list[int]] = field(default_factory=dict)
    tokenizer: str = ""
    writer: object | None = None
    trouble: str = ""
    stuck: set[int] = field(default_factory=set)
    last: int = 0


class FakeRecallStore:
    """A record of at most `most_chunks` chunks of `chunk_ids`. A second store on a folder reads and does not write."""

    def __init__(
        self,
        folder: FakeRecordFolder | None = None,
        *,
        chunk_ids: int = 1024,
        most_chunks: int = 16,
        read_only: bool = False,
        tokenizer: str = "fake",
    ) -> None:
        self.folder = folder if folder is not None else FakeRecordFolder()
        self.synced = 0
        self._chunk_ids = chunk_ids
        self._most_chunks = most_chunks
        self._read_only = read_only
        self._tokenizer = tokenizer
        self._state: RecordState = "off"
        self._reason = "not opened"

    def open(self) -> StoreState:
        """Take the lock when it is free; another tokenizer's folder is refused."""
        if self.folder.tokenizer not in ("", self._tokenizer):
            raise RefusedError(f"The record was written by the tokenizer {self.folder.tokenizer}.")
        if self._read_only:
            self._state, self._reason = "read-only", "nothing is added"
        elif self.folder.writer not in (None, self):
            self._state, self._reason = "second", "another process writes this record"
        else:
            self.folder.writer, self.folder.tokenizer = self, self._tokenizer
            self._look()
        return self.state()

    def append(self, ids: Ids) -> Appended:
        """Add one piece; not added unless the state is `on`."""
        if self._state == "off":
            raise MisuseError("append to a record that is not open")
        self._look()
        parts, evicted, rest = list[Part](), list[int](), ids
        while self._state == "on" and len(rest):
            if not self.folder.chunks or self._room() == 0:
                evicted += self._start()
            part, rest = seam(rest, self._room())
            if len(part):
                parts.append(self._put(part))
            if len(rest):
                evicted += self._start()
        return Appended(tuple(part for part in parts if part.sequence not in evicted), tuple(evicted))

    def sync(self) -> StoreState:
        """Counted; a trouble that has passed is forgotten."""
        self.synced += 1
        self._look()
        return self.state()

    def chunks(self) -> Iterator[StoredChunk]:
        """Oldest first."""
        for sequence, values in list(self.folder.chunks.items()):
            yield StoredChunk(sequence, np.array(values, dtype=np.int32))

    def delete_all(self) -> StoreState:
        """Remove every chunk but those that are stuck, the first of which is named."""
        if self._state in ("on", "paused", "delete-failed"):
            self.folder.chunks = {s: v for s, v in self.folder.chunks.items() if s in self.folder.stuck}
            self._state, self._reason = "on", ""
            if self.folder.chunks:
                self._state, self._reason = "delete-failed", f"{min(self.folder.chunks):08d}.ids could not be removed"
            self._look()
        return self.state()

    def state(self) -> StoreState:
        """Four bytes a value."""
        return StoreState(self._state, ID_BYTES * sum(map(len, self.folder.chunks.values())), self._reason)

    def close(self) -> None:
        """Give the lock back; closing twice is harmless."""
        if self.folder.writer is self:
            self.folder.writer = None
        self._state, self._reason = "off", "closed"

    def _look(self) -> None:
        if self.folder.writer is self and self._state != "delete-failed":
            self._state, self._reason = ("paused", self.folder.trouble) if self.folder.trouble else ("on", "")

    def _room(self) -> int:
        return self._chunk_ids - len(next(reversed(self.folder.chunks.values())))

    def _start(self) -> list[int]:
        evicted = list(self.folder.chunks)[: max(0, len(self.folder.chunks) + 1 - self._most_chunks)]
        for sequence in evicted:
            del self.folder.chunks[sequence]
        self.folder.last += 1
        self.folder.chunks[self.folder.last] = []
        return evicted

    def _put(self, ids: Ids) -> Part:
        sequence, values = next(reversed(self.folder.chunks.items()))
        offset = len(values)
        values += ids.tolist()
        if len(values) < self._chunk_ids:
            values.append(SEPARATOR)
        return Part(sequence, offset, ids)


class FakeSnapshotStore:
    """Images by key, newest first. `spoil` damages one as a bad disk would; while `full` nothing is written."""

    def __init__(self) -> None:
        self._images: dict[str, tuple[Snapshot, LaneImage]] = {}
        self._spoilt: set[str] = set()
        self.full = False
        self.saved: list[str] = []

    def held(self) -> Sequence[Snapshot]:
        """Newest first."""
        return tuple(snapshot for snapshot, _ in reversed(self._images.values()))

    def save(self, kind: SnapshotKind, ids: Ids, starts: Sequence[int], image: LaneImage) -> Snapshot | None:
        """Keep one image; one behind the same ids moves to the front."""
        if self.full:
            return None
        key = ids.tobytes().hex()
        self._images.pop(key, None)
        self._spoilt.discard(key)
        size = sum(len(data) for _, data in image.buffers)
        self._images[key] = Snapshot(key, kind, ids.copy(), tuple(starts), size), image
        self.saved.append(kind)
        return self._images[key][0]

    def load(self, key: str) -> LaneImage | None:
        """The image, or None when it is missing or damaged."""
        return self._images[key][1] if key in self._images and key not in self._spoilt else None

    def touch(self, key: str) -> None:
        """Move one to the front."""
        if key in self._images:
            self._images[key] = self._images.pop(key)

    def delete(self, key: str) -> None:
        """Forget one image."""
        self._images.pop(key, None)
        self._spoilt.discard(key)

    def prune(self, kind: SnapshotKind, most: int, most_bytes: int | None = None) -> None:
        """Forget the oldest."""
        room = most_bytes
        for at, snapshot in enumerate(s for s in self.held() if s.kind == kind):
            room = None if room is None else room - snapshot.size
            if at >= most or (room is not None and room < 0):
                self.delete(snapshot.key)

    def spoil(self, key: str) -> None:
        """Damage one image."""
        if key not in self._images:
            raise KeyError(key)
        self._spoilt.add(key)
