"""The record on a disk: the RecallStore over one folder of chunk files, an identity and a lock.

The disk comes first: a piece is in memory only after it was written, so memory never offers what a failed write lost.
Nothing here may end a request: once open, every fault is a state with a reason, told once in the log. No reason, log
line or error carries an id. What a crash may lose is said in `record_tail`, the bytes of a file in `record_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tensorfold.adapters.filesystem.record_access import RecordAccess
from tensorfold.adapters.filesystem.record_chunks import RecordChunks
from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_format import first_sequence
from tensorfold.adapters.filesystem.record_reading import read_chunks
from tensorfold.adapters.filesystem.record_standing import WRITING, Standing
from tensorfold.adapters.filesystem.record_tail import ChunkTail
from tensorfold.adapters.filesystem.record_trouble import TroubleError, cause, trouble
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.stores import Appended, RecordState, StoredChunk, StoreState
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_IDS, ID_BYTES, LEAD_IDS, LEAST_CHUNKS, Ids, Part

LEAST_FREE_BYTES = 4 << 30
"""With less free on the disk nothing is added."""
LEAST_CHUNK_IDS = 2 * LEAD_IDS
"""A smaller chunk could not hold what a seam repeats and something new."""
_LOW = f"under {LEAST_FREE_BYTES >> 30} GiB are free on the record's disk"
_GONE = "the record's folder or its lock was removed or replaced; start the server again to begin a new record"
_SECOND = "another server writes this record"
_NOT_TAKEN = "the record's folder could not be taken"
_READ_ONLY = "the server was started with --recall-read-only"


class RecordStore:
    """RecallStore of one folder; `folder` is its path for messages. `chunk_ids` is smaller in tests alone."""

    def __init__(
        self,
        files: RecordFiles,
        identity: RecordIdentity,
        *,
        budget_bytes: int,
        read_only: bool,
        free_bytes: Callable[[], int],
        clock: Clock,
        log: Callable[[str], None],
        folder: str,
        chunk_ids: int = CHUNK_IDS,
    ) -> None:
        """Raises ValueError for a budget below LEAST_CHUNKS chunks. Touches nothing."""
        self._most_chunks = budget_bytes // (chunk_ids * ID_BYTES)
        if self._most_chunks < LEAST_CHUNKS or chunk_ids < LEAST_CHUNK_IDS:
            raise ValueError(f"{budget_bytes} bytes are under {LEAST_CHUNKS} chunks of at least {LEAST_CHUNK_IDS} ids")
        self._files = files
        self._vocabulary = identity.vocabulary
        self._read_only = read_only
        self._free_bytes = free_bytes
        self._clock = clock
        self._log = log
        self._chunk_ids = chunk_ids
        self._access = RecordAccess(files, identity, folder)
        self._standing = Standing(log)
        self._chunks = self._fresh_chunks()
        self._entered = False
        """Whether the lock is held and the identity was checked."""
        self._failed = ""
        """Why the last piece was not added, or (`_failed_settling`) not made durable; forgotten when that succeeds."""
        self._failed_settling = False
        self._read_bytes = 0

    # RecallStore

    def open(self) -> StoreState:
        """Check whose record it is, and take the lock unless it is only read. Raises RefusedError."""
        self._entered, self._failed, self._chunks = False, "", self._fresh_chunks()
        self._standing.become("off", "refused")
        if self._read_only:
            self._only_read("read-only", _READ_ONLY)
        else:
            try:
                self._enter()
            except OSError as error:
                self._standing.become("on")
                self._standing.pause(f"{_NOT_TAKEN}: {cause(error)}")
            else:
                self._look()
        return self.state()

    def append(self, ids: Ids) -> Appended:
        """Add one piece, in parts where chunks end; on any fault less of it, and the state says why. Never raises."""
        parts: list[Part] = []
        evicted: list[int] = []
        if len(ids) and self._look(evicted) and self._settle_due():
            try:
                self._chunks.add(ids, parts, evicted)
            except TroubleError as error:
                self._fail(error.reason, settling=False)
            else:
                self._failed = ""
                self._standing.resume()
        return Appended(tuple(part for part in parts if part.sequence not in evicted), tuple(evicted))

    def sync(self) -> StoreState:
        """Make durable what is due, and end a pause whose cause has passed; a failed write waits for the next piece."""
        if self._entered:
            self._settle_due()
        self._look()
        return self.state()

    def chunks(self) -> Iterator[StoredChunk]:
        """The newest chunks that the budget holds, oldest first; the log tells what cannot be read and is left out."""
        if not self._entered and self._standing.state not in ("read-only", "second"):
            return iter(())
        return read_chunks(
            self._files, self._vocabulary, most_chunks=self._most_chunks, chunk_ids=self._chunk_ids, log=self._log
        )

    def delete_all(self) -> StoreState:
        """Remove every chunk file; while one stays the state is `delete-failed` and names the first."""
        if self._standing.state in WRITING:
            stayed = self._clear()
            if stayed:
                self._standing.stay_full(stayed)
            elif self._entered:
                self._failed = ""
                self._standing.emptied()
                self._look()
        return self.state()

    def state(self) -> StoreState:
        """The present state, without a look at the disk."""
        size = self._chunks.bytes if self._entered else self._read_bytes
        return StoreState(self._standing.state, size, self._standing.reason)

    def close(self) -> None:
        """Make everything durable and give the lock back."""
        if self._entered:
            try:
                self._chunks.settle()
            except TroubleError as error:
                self._log(f"recall: {error.reason}")
        try:
            self._files.unlock()
        except OSError as error:
            self._log(f"recall: the lock could not be given back: {cause(error)}")
        self._entered = False
        self._standing.become("off", "closed")

    # Inside

    def _enter(self) -> None:
        """Become the writer, or a reader where there is one. Raises RefusedError, and OSError for what may pass."""
        if self._access.write():
            self._entered = True
            self._standing.become("on")
        else:
            self._only_read("second", _SECOND)

    def _only_read(self, state: RecordState, reason: str) -> None:
        self._read_bytes = self._access.read(self._most_chunks)
        self._standing.become(state, reason)

    def _fresh_chunks(self) -> RecordChunks:
        new_tail = partial(ChunkTail, self._files, self._vocabulary, self._chunk_ids, self._clock.monotonic)
        return RecordChunks(
            self._files,
            most_chunks=self._most_chunks,
            chunk_ids=self._chunk_ids,
            new_tail=new_tail,
            first_sequence=lambda: first_sequence(self._clock.wall()),
            log=self._log,
        )

    def _look(self, evicted: list[int] | None = None) -> bool:
        """Whether a piece may be tried now; pauses for what the surroundings lack, and ends such a pause."""
        if not self._standing.adding:
            return False
        try:
            if not self._entered:
                self._enter_late()
            if not self._entered:
                return False
            self._look_around([] if evicted is None else evicted)
        except TroubleError as error:
            self._standing.pause(error.reason)
            return False
        if self._failed:
            self._standing.pause(self._failed)
        else:
            self._standing.resume()
        return True

    def _enter_late(self) -> None:
        """What `open` could not do. Raises TroubleError."""
        standing = self._standing.state, self._standing.reason
        try:
            with trouble(_NOT_TAKEN):
                self._enter()
        except RefusedError as error:
            raise TroubleError(error.message.rstrip(".")) from error
        if self._entered:
            self._standing.become(*standing)

    def _look_around(self, evicted: list[int]) -> None:
        """Raises TroubleError for what keeps pieces out. The budget is kept also where the disk is low."""
        with trouble("the record's folder could not be looked at"):
            if not self._files.present():
                raise TroubleError(_GONE)
        self._chunks.prepare(evicted)
        if self._free_bytes() < LEAST_FREE_BYTES:
            raise TroubleError(_LOW)

    def _settle_due(self) -> bool:
        """Whether everything that had to be durable by now is."""
        try:
            if self._chunks.due():
                self._chunks.settle()
        except TroubleError as error:
            self._fail(error.reason, settling=True)
            return False
        self._failed = "" if self._failed_settling else self._failed
        return True

    def _clear(self) -> str:
        """The first chunk that stayed with the cause, or nothing."""
        try:
            if not self._entered:
                self._enter_late()
            with trouble("the record's folder could not be looked at"):
                # What is there now is another record, or has another writer who would lose what it adds.
                if self._entered and self._files.replaced():
                    return _GONE
            return self._chunks.clear() if self._entered else ""
        except TroubleError as error:
            return error.reason

    def _fail(self, reason: str, *, settling: bool) -> None:
        self._failed, self._failed_settling = reason, settling
        self._standing.pause(reason)
