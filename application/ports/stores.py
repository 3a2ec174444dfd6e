"""What is kept on disk between runs: the record of token ids, and lane snapshots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import LaneImage

RecordState = Literal["off", "on", "read_only", "second", "paused", "delete_failed"]


@dataclass(frozen=True, slots=True)
class StoreState:
    """State of the record on disk, its size and why it is not plainly `on`."""

    state: RecordState
    bytes_on_disk: int
    reason: str = ""


class RecallStore(Protocol):
    """Append-only pieces of token ids in chunks."""

    def open(self) -> StoreState:
        """Take the writer's lock where possible, and check identity."""
        ...

    def append(self, ids: Sequence[int]) -> None:
        """Add one piece; durable at a later moment the store documents."""
        ...

    def chunks(self) -> Iterator[NDArray[np.uint32]]:
        """The ids on disk, oldest chunk first, as read and validated."""
        ...

    def delete_all(self) -> StoreState:
        """Remove every chunk; directory, identity and lock stay."""
        ...

    def state(self) -> StoreState:
        """The present state."""
        ...

    def close(self) -> None:
        """Flush and give the lock back."""
        ...


class SnapshotStore(Protocol):
    """Lane images by the ids they absorbed, for resuming after a restart."""

    def save(self, key: bytes, image: LaneImage) -> None:
        """Write one image atomically."""
        ...

    def load(self, key: bytes) -> LaneImage | None:
        """A validated image, or None."""
        ...

    def keys(self) -> Sequence[bytes]:
        """Keys held, newest first."""
        ...

    def delete(self, key: bytes) -> None:
        """Remove one image; a missing one is fine."""
        ...
