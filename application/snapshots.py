"""Kept states on disk: found by a prompt's ids, written by a thread of their own.

The engine's thread only looks things up and reads; it never waits for a write. Shared beginnings are written once, when
they are computed; conversations when the server ends. Knows no lane and no request.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.faults import named
from tensorfold.application.ports.stores import Snapshot, SnapshotKind, SnapshotStore
from tensorfold.application.ports.target_model import LaneImage
from tensorfold.domain.prompts.chunks import ChunkPlan
from tensorfold.domain.prompts.retained import Prefix, fits_plan

MOST_SYSTEMS, MOST_CONVERSATIONS = 8, 2
MOST_BYTES = 10 << 30
_MOST_WAITING = 16
_LAST_S = 60.0
Task = Callable[[], None]


class SnapshotShelf:
    """What one server keeps on disk between runs. Called by the engine's thread, `close` by any other."""

    def __init__(self, store: SnapshotStore, log: Callable[[str], None] = lambda line: None) -> None:
        self._store = store
        self._log = log
        self._index = {snapshot.key: snapshot for snapshot in store.held()}
        self._lock = threading.Lock()
        self._tasks: queue.Queue[Task | None] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._index)

    @property
    def size(self) -> int:
        """Bytes on disk that can be resumed."""
        return sum(snapshot.size for snapshot in self._known())

    def match(self, ids: NDArray[np.int32], plan: ChunkPlan, beyond: int) -> Snapshot | None:
        """The longest snapshot of more than `beyond` ids that a prompt passes through."""
        fits = [
            snapshot
            for snapshot in self._known()
            if len(snapshot.ids) > beyond and fits_plan(snapshot.ids, snapshot.starts, ids, plan)
        ]
        return max(fits, key=lambda snapshot: len(snapshot.ids), default=None)

    def load(self, snapshot: Snapshot) -> LaneImage | None:
        """The image of a snapshot that was matched; None where it is gone or spoilt, and it is not matched again."""
        image = self._store.load(snapshot.key)
        if image is None or image.length != len(snapshot.ids):
            self.forget(snapshot.key)
            return None
        self._do(lambda: self._store.touch(snapshot.key))
        return image

    def forget(self, key: str) -> None:
        """Match a snapshot no more; the file stays."""
        with self._lock:
            self._index.pop(key, None)

    def keep_system(self, prefix: Prefix[LaneImage]) -> None:
        """Write a shared beginning, unless it is there."""
        self._keep("system", prefix)
        self._do(lambda: self._store.prune("system", MOST_SYSTEMS))

    def keep_conversations(self, prefixes: Sequence[Prefix[LaneImage]]) -> None:
        """Write the last used conversations, as many as there is room for; older ones go."""
        room = MOST_BYTES
        for prefix in prefixes[:MOST_CONVERSATIONS]:
            room -= prefix.size
            if room >= 0:
                self._keep("conversation", prefix)
        self._do(lambda: self._store.prune("conversation", MOST_CONVERSATIONS, MOST_BYTES))

    def close(self) -> None:
        """Return when all that was handed in is written, or after a minute; nothing is taken afterwards.

        A write that is left behind leaves the old file. Closing twice is harmless.
        """
        self._closed = True
        if self._thread is not None:
            with suppress(queue.Full):
                self._tasks.put(None, timeout=_LAST_S)
            self._thread.join(_LAST_S)
            self._thread = None

    def _known(self) -> list[Snapshot]:
        with self._lock:
            return list(self._index.values())

    def _keep(self, kind: SnapshotKind, prefix: Prefix[LaneImage]) -> None:
        self._do(lambda: self._save(kind, prefix))

    def _save(self, kind: SnapshotKind, prefix: Prefix[LaneImage]) -> None:
        same = next((s for s in self._known() if np.array_equal(s.ids, prefix.ids)), None)
        if same is not None:
            self._store.touch(same.key)
            return
        saved = self._store.save(kind, prefix.ids, prefix.starts, prefix.state)
        if saved is not None:
            with self._lock:
                self._index[saved.key] = saved

    def _do(self, task: Task) -> None:
        if self._closed:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="snapshots", daemon=True)
            self._thread.start()
        try:
            self._tasks.put_nowait(task)
        except queue.Full:
            self._log("a snapshot was not written: too many wait already")

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except Exception as fault:
                self._log(f"a snapshot was not written: {named(fault)}")
