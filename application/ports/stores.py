"""What is kept on disk between runs: the record of token ids, and lane snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from tensorfold.application.ports.target_model import LaneImage
from tensorfold.domain.recall.layout import Ids, Part

RecordState = Literal["off", "on", "read-only", "second", "paused", "delete-failed"]


@dataclass(frozen=True, slots=True)
class StoreState:
    """State of the record on disk, its size and why it is not plainly `on`.

    `second`: another server writes the record. `paused`: nothing is added for a `reason` that may pass.
    `delete-failed`: nothing is added until every chunk could be deleted; `reason` names the first that could not.
    """

    state: RecordState
    bytes_on_disk: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """A chunk as it was read: at most CHUNK_IDS values, separators included, everything that is no id made one."""

    sequence: int
    ids: Ids


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a piece went, and the chunks deleted to make room. No parts: it was not added, the state says why."""

    parts: tuple[Part, ...] = ()
    evicted: tuple[int, ...] = ()


class RecallStore(Protocol):
    """Append-only pieces of token ids in chunks of a bounded number. One thread at a time calls it."""

    def open(self) -> StoreState:
        """Take the writer's lock where possible and check identity. RefusedError when another tokenizer wrote."""
        ...

    def append(self, ids: Ids) -> Appended:
        """Add one piece, cut where a chunk ends. Never raises; durable at a later moment the store documents."""
        ...

    def sync(self) -> StoreState:
        """Make durable what has waited long enough, and look whether a pause is over; called now and then when idle."""
        ...

    def chunks(self) -> Iterator[StoredChunk]:
        """The chunks on disk, oldest first; what cannot be read is left out."""
        ...

    def delete_all(self) -> StoreState:
        """Remove every chunk; directory, identity and lock stay. Does nothing where this store may not write."""
        ...

    def state(self) -> StoreState:
        """The present state."""
        ...

    def close(self) -> None:
        """Make everything durable and give the lock back; closing twice is harmless."""
        ...


SnapshotKind = Literal["system", "conversation"]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A kept state as its header tells it: `size` bytes on disk behind `ids`, absorbed in chunks from `starts`."""

    key: str
    kind: SnapshotKind
    ids: Ids
    starts: tuple[int, ...]
    size: int


class SnapshotStore(Protocol):
    """Lane images by the ids they absorbed, for resuming after a restart; all of one engine and one chunk plan.

    No call raises: what cannot be written, read or removed is left as it is, and told in the log once. One thread at a
    time writes, touches and removes; `held` and `load` may be called beside it.
    """

    def held(self) -> Sequence[Snapshot]:
        """What can be resumed here, newest first; whatever is malformed or of another engine is left out."""
        ...

    def save(self, kind: SnapshotKind, ids: Ids, starts: Sequence[int], image: LaneImage) -> Snapshot | None:
        """Write one image, whole or not at all, durably; an image behind the same ids becomes the newest.

        None when it could not be written.
        """
        ...

    def load(self, key: str) -> LaneImage | None:
        """An image, checked byte by byte; None when it is missing or not what was written."""
        ...

    def touch(self, key: str) -> None:
        """Make an image the newest."""
        ...

    def delete(self, key: str) -> None:
        """Remove one image; a missing one is fine."""
        ...

    def prune(self, kind: SnapshotKind, most: int, most_bytes: int | None = None) -> None:
        """Remove the oldest of a kind beyond `most` and `most_bytes`, those of this model's other engines among them.

        Other models' are left alone.
        """
        ...
