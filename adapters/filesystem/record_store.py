"""The record on a disk: the RecallStore over one folder of chunk files, an identity and a lock.

The disk comes first: a piece is in memory only after it was written, so memory never offers what a failed write lost.
Nothing here may end a request: once open, every fault is a state with a reason, told once in the log. No reason, log
line or error carries an id. What a crash may lose is said in `record_tail`, the bytes of a file in `record_format`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tensorfold.adapters.filesystem.record_chunks import RecordChunks
from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_format import MOST_SEQUENCE
from tensorfold.adapters.filesystem.record_identity import check_identity, write_identity
from tensorfold.adapters.filesystem.record_reading import chunk_sizes, newest, read_chunks
from tensorfold.adapters.filesystem.record_tail import ChunkTail
from tensorfold.adapters.filesystem.record_trouble import TroubleError, cause, passing, trouble
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
        self._identity = identity
        self._read_only = read_only
        self._free_bytes = free_bytes
        self._clock = clock
        self._log = log
        self._folder = "".join(c if c.isprintable() else "?" for c in folder)
        self._chunk_ids = chunk_ids
        self._chunks = self._fresh_chunks()
        self._state: RecordState = "off"
        self._reason = "not opened"
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
        try:
            self._open()
        except RefusedError:
            self._files.unlock()
            self._state, self._reason = "off", "refused"
            raise
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
                self._resume()
        return Appended(tuple(part for part in parts if part.sequence not in evicted), tuple(evicted))

    def sync(self) -> StoreState:
        """Make durable what is due, and end a pause whose cause has passed; a failed write waits for the next piece."""
        if self._entered:
            self._settle_due()
        self._look()
        return self.state()

    def chunks(self) -> Iterator[StoredChunk]:
        """The newest chunks that the budget holds, oldest first; the log tells what cannot be read and is left out."""
        if not self._entered and self._state not in ("read-only", "second"):
            return iter(())
        return read_chunks(
            self._files,
            self._identity.vocabulary,
            most_chunks=self._most_chunks,
            chunk_ids=self._chunk_ids,
            log=self._log,
        )

    def delete_all(self) -> StoreState:
        """Remove every chunk file; while one stays the state is `delete-failed` and names the first."""
        if self._state not in ("on", "paused", "delete-failed"):
            return self.state()
        stayed = self._clear()
        if stayed:
            if (self._state, self._reason) != ("delete-failed", stayed):
                self._log(f"recall: {stayed}; nothing is added until the record could be emptied")
            self._state, self._reason = "delete-failed", stayed
        elif self._entered:
            self._failed = ""
            if self._state == "delete-failed":
                self._log("recall: the record was emptied")
                self._state, self._reason = "on", ""
            self._look()
        return self.state()

    def state(self) -> StoreState:
        """The present state, without a look at the disk."""
        size = self._chunks.bytes if self._entered else self._read_bytes
        return StoreState(self._state, size, self._reason)

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
        self._state, self._reason = "off", "closed"

    # Entering

    def _open(self) -> None:
        if self._read_only:
            self._only_read("read-only", _READ_ONLY)
            return
        self._state, self._reason = "on", ""
        try:
            self._enter()
        except OSError as error:
            if not passing(error):
                raise RefusedError(self._unusable(error)) from error
            self._pause(f"the record's folder could not be taken: {cause(error)}")
        else:
            self._look()

    def _enter(self) -> None:
        """Take the lock and check the identity, or become a reader. Raises OSError and RefusedError."""
        self._files.create_folder()
        if not self._files.lock():
            self._only_read("second", _SECOND)
            return
        missing = check_identity(self._files, self._identity, self._folder)
        if missing is not None:
            write_identity(self._files, missing)
        else:
            # An earlier server may have been stopped between renaming the identity and making its name durable.
            self._files.sync_folder()
        self._entered = True
        self._state, self._reason = "on", ""

    def _only_read(self, state: RecordState, reason: str) -> None:
        try:
            check_identity(self._files, self._identity, self._folder)
            self._read_bytes = sum(newest(chunk_sizes(self._files), self._most_chunks).values())
        except OSError as error:
            raise RefusedError(
                f"The record's folder {self._folder} cannot be read ({cause(error)}); "
                f"give the server access to it, or name another one with --recall-dir."
            ) from error
        self._state, self._reason = state, reason

    def _unusable(self, error: OSError) -> str:
        return (
            f"The record's folder {self._folder} cannot be written ({cause(error)}); give the server access to it, "
            f"name another one with --recall-dir, or only read it with --recall-read-only."
        )

    def _fresh_chunks(self) -> RecordChunks:
        new_tail = partial(ChunkTail, self._files, self._identity.vocabulary, self._chunk_ids, self._clock.monotonic)
        return RecordChunks(
            self._files,
            most_chunks=self._most_chunks,
            chunk_ids=self._chunk_ids,
            new_tail=new_tail,
            first_sequence=self._first_sequence,
            log=self._log,
        )

    def _first_sequence(self) -> int:
        """Minutes since 1970: a folder that was emptied by an earlier server does not use its numbers again."""
        return min(max(1, int(self._clock.wall()) // 60), MOST_SEQUENCE // 2)

    # Pausing and going on

    def _look(self, evicted: list[int] | None = None) -> bool:
        """Whether a piece may be tried now; pauses for what the surroundings lack, and ends such a pause."""
        if self._state not in ("on", "paused"):
            return False
        try:
            if not self._entered:
                self._enter_late()
                if not self._entered:
                    return False
            self._look_around([] if evicted is None else evicted)
        except TroubleError as error:
            self._pause(error.reason)
            return False
        if self._failed:
            self._pause(self._failed)
        else:
            self._resume()
        return True

    def _enter_late(self) -> None:
        try:
            with trouble("the record's folder could not be taken"):
                self._enter()
        except RefusedError as error:
            self._files.unlock()
            raise TroubleError(error.message.rstrip(".")) from error

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
        try:
            if not self._entered:
                self._enter_late()
            return self._chunks.clear() if self._entered else ""
        except TroubleError as error:
            return error.reason

    def _fail(self, reason: str, *, settling: bool) -> None:
        self._failed, self._failed_settling = reason, settling
        self._pause(reason)

    def _pause(self, reason: str) -> None:
        if self._state not in ("on", "paused"):
            return
        if (self._state, self._reason) != ("paused", reason):
            self._log(f"recall: nothing is added to the record: {reason}")
        self._state, self._reason = "paused", reason

    def _resume(self) -> None:
        if self._state == "paused":
            self._log("recall: the record is added to again")
        self._state, self._reason = "on", ""
