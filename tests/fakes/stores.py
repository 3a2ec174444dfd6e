"""What a disk would keep, kept in memory: the record of ids and lane snapshots. Several stores may share one folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.stores import RecordState, StoreState
from tensorfold.application.ports.target_model import LaneImage
from tests.fakes.misuse import MisuseError


@dataclass(slots=True)
class FakeRecordFolder:
    """A folder that outlives the stores on it. `writer` is the store that holds its lock."""

    chunks: list[list[int]] = field(default_factory=list)
    writer: object | None = None
    writable: bool = True
    deletable: bool = True


class FakeRecallStore:
    """A record of ids in chunks of at most `chunk_ids`. A second store on a folder reads and does not write."""

    def __init__(self, folder: FakeRecordFolder | None = None, chunk_ids: int = 1024) -> None:
        self.folder = folder if folder is not None else FakeRecordFolder()
        self._chunk_ids = chunk_ids
        self._state: RecordState = "off"
        self._reason = "not opened"

    def open(self) -> StoreState:
        """Take the lock when it is free and the folder can be written."""
        if not self.folder.writable:
            self._state, self._reason = "read_only", "the folder cannot be written"
        elif self.folder.writer not in (None, self):
            self._state, self._reason = "second", "another process writes this record"
        else:
            self.folder.writer = self
            self._state, self._reason = "on", ""
        return self.state()

    def append(self, ids: Sequence[int]) -> None:
        """Add one piece; dropped unless the state is `on`."""
        if self._state == "off":
            raise MisuseError("append to a record that is not open")
        if self._state != "on" or not ids:
            return
        chunks = self.folder.chunks
        if not chunks or len(chunks[-1]) + len(ids) > self._chunk_ids:
            chunks.append([])
        chunks[-1] += ids

    def chunks(self) -> Iterator[NDArray[np.uint32]]:
        """Oldest first."""
        for chunk in list(self.folder.chunks):
            yield np.array(chunk, dtype=np.uint32)

    def delete_all(self) -> StoreState:
        """Remove every chunk, unless the folder refuses."""
        if self._state == "on":
            if self.folder.deletable:
                self.folder.chunks.clear()
            else:
                self._state, self._reason = "delete_failed", "a chunk could not be removed"
        return self.state()

    def state(self) -> StoreState:
        """Four bytes an id."""
        return StoreState(self._state, 4 * sum(map(len, self.folder.chunks)), self._reason)

    def close(self) -> None:
        """Give the lock back; closing twice is harmless."""
        if self.folder.writer is self:
            self.folder.writer = None
        self._state, self._reason = "off", "closed"


class FakeSnapshotStore:
    """Images by key, newest first. `spoil` damages one as a bad disk would."""

    def __init__(self) -> None:
        self._images: dict[bytes, LaneImage] = {}
        self._spoilt: set[bytes] = set()

    def save(self, key: bytes, image: LaneImage) -> None:
        """Keep one image; a key kept before moves to the front."""
        self._images.pop(key, None)
        self._spoilt.discard(key)
        self._images[bytes(key)] = image

    def load(self, key: bytes) -> LaneImage | None:
        """The image, or None when it is missing or damaged."""
        return None if key in self._spoilt else self._images.get(key)

    def keys(self) -> Sequence[bytes]:
        """Newest first."""
        return tuple(reversed(self._images))

    def delete(self, key: bytes) -> None:
        """Forget one image."""
        self._images.pop(key, None)
        self._spoilt.discard(key)

    def spoil(self, key: bytes) -> None:
        """Damage one image."""
        if key not in self._images:
            raise KeyError(key)
        self._spoilt.add(key)
