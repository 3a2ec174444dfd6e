"""Recall: the record of the ids this server has read and written, and the copies that streams draft from it.

One thread of its own reads and writes the record; the engine's thread only hands it finished runs and looks places up.
Whatever fails here costs drafts: no request waits for the record, and none ends because of it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from tensorfold.application.faults import named
from tensorfold.application.listeners import harmless
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.stores import RecallStore, StoreState
from tensorfold.domain.recall.figures import OfferFigures
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.layout import ID_BYTES, LEAD_IDS, LEAST_RUN, SEPARATOR, Ids
from tensorfold.domain.recall.pieces import novel
from tensorfold.domain.recall.policy import OfferPolicy, OfferSettings
from tensorfold.domain.recall.source import RecallSourceFactory

MOST_RUNS = 64
MOST_QUEUED_BYTES = 16 << 20
"""Bounds of what waits for the writer: a run past them is dropped and counted."""
_LOOK_S = 1.0
"""How often the writer, busy or idle, makes ids durable and looks whether a pause is over."""
_RESTLESS_S = 10.0
"""How long after its last work a writer looks around; what had to be made durable is by then."""

_AT_ONCE = 4096
"""Ids of a run that are taken over at once: a fraction of a millisecond."""


class RecallConflictError(Exception):
    """This server may not empty the record; `message` says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class RecallDeleteError(Exception):
    """A chunk could not be deleted; `message` names it."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class RecallReport:
    """The record in figures. Ids are counted without separators; sizes are bytes.

    `added_ids`, `held_ids` (already there), `dropped_ids` (not added: the writer was behind, or adding is paused) and
    `evicted_ids` count since the server started or the record was emptied, like `copies`.
    """

    state: str
    directory: str
    tokenizer: str
    vocabulary: int
    model: str
    ids: int
    chunks: int
    disk_bytes: int
    memory_bytes: int
    budget_bytes: int
    added_ids: int
    held_ids: int
    dropped_ids: int
    evicted_ids: int
    copies: OfferFigures
    reason: str | None


@dataclass(frozen=True, slots=True)
class _Run:
    """What one request read and wrote, waiting for the writer."""

    tokens: Sequence[int]
    start: int
    began: int

    @property
    def ids(self) -> int:
        return len(self.tokens) - self.start


@dataclass(slots=True)
class _Call:
    """Something that another thread waits for: `delete` empties the record, otherwise it only marks a point in time."""

    delete: bool
    emptied: bool = False
    done: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class _Counts:
    added: int = 0
    held: int = 0
    evicted: int = 0


class RecallService:
    """Keeps one record. `open`, `start`, then any calls from any thread, then `close`."""

    def __init__(
        self,
        store: RecallStore,
        identity: RecordIdentity,
        *,
        directory: str,
        budget_bytes: int,
        clock: Clock,
        log: Callable[[str], None],
        offers: OfferSettings | None = None,
    ) -> None:
        self._store = store
        self._identity = identity
        self._directory = directory
        self._budget = budget_bytes
        self._clock = clock
        self._log = harmless(log)
        self._index = RecordIndex(budget_bytes, identity.vocabulary, whole=False)
        self._policy = OfferPolicy(offers or OfferSettings())
        self._factory = RecallSourceFactory(self._index, self._policy)
        self._stored = StoreState("off", 0, "not opened")
        self._counts = _Counts()
        self._dropped = 0
        self._generation = 0
        self._wake = threading.Condition()
        self._jobs: deque[_Run | _Call] = deque()
        self._queued_runs = 0
        self._queued_bytes = 0
        self._loaded = threading.Event()
        self._deadline: float | None = None
        self._worked_at = self._looked_at = 0.0
        self._thread = threading.Thread(target=self._main, name="recall", daemon=True)

    # -- beginning and ending ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the lock and check whose record it is; quick. Raises RefusedError."""
        self._stored = self._store.open()

    def start(self) -> None:
        """Load the record on the writer's thread; nothing is offered before it is there."""
        self._thread.start()

    def wait_loaded(self, timeout: float) -> bool:
        """Whether the record is loaded, waiting at most `timeout` seconds."""
        return self._loaded.wait(timeout)

    def close(self, timeout: float = 2.0) -> None:
        """Write what waits, for at most `timeout` seconds, make it durable and give the lock back."""
        with self._wake:
            if self._deadline is not None:
                return
            self._deadline = self._clock.monotonic() + timeout
            self._wake.notify()
        if self._thread.ident is None:
            self._close_store()
            return
        # A little longer than the writer allows itself, so that it can still give the lock back.
        self._thread.join(timeout + 1.0)

    # -- the engine's side ---------------------------------------------------------------------------------------

    @property
    def factory(self) -> RecallSourceFactory:
        """Makes the streams' draft sources."""
        return self._factory

    def began(self) -> int:
        """How often the record was emptied; from any thread. A request adds nothing to one emptied since it came."""
        return self._generation

    def record(self, tokens: Sequence[int], resumed: int, began: int) -> None:
        """Hand over what a stream read and wrote. Never waits: when the writer is too far behind, it is dropped."""
        start = max(0, resumed - LEAD_IDS)
        run = _Run(tokens, start, began)
        if run.ids < LEAST_RUN or self._stored.state not in ("on", "paused"):
            return
        size = ID_BYTES * run.ids
        with self._wake:
            if began != self._generation or self._deadline is not None:
                return
            if self._queued_runs >= MOST_RUNS or self._queued_bytes + size > MOST_QUEUED_BYTES:
                self._dropped += run.ids
                return
            self._queued_runs += 1
            self._queued_bytes += size
            self._jobs.append(run)
            self._wake.notify()

    # -- other threads -------------------------------------------------------------------------------------------

    def settle(self, timeout: float) -> bool:
        """Wait until what was recorded so far is in the record; False when `timeout` seconds were not enough."""
        call = _Call(delete=False)
        self._ask(call)
        return call.done.wait(timeout)

    def report(self) -> RecallReport:
        """The record as it stands; waits for nobody."""
        stored, counts, index = self._stored, self._counts, self._index
        return RecallReport(
            state=stored.state if self._loaded.is_set() else "loading",
            directory=self._directory,
            tokenizer=f"sha256:{self._identity.digest}",
            vocabulary=self._identity.vocabulary,
            model=self._identity.model,
            ids=index.ids,
            chunks=index.chunks,
            disk_bytes=stored.bytes_on_disk,
            memory_bytes=index.memory_bytes,
            budget_bytes=self._budget,
            added_ids=counts.added,
            held_ids=counts.held,
            dropped_ids=self._dropped,
            evicted_ids=counts.evicted,
            copies=self._policy.figures(),
            reason=stored.reason or None,
        )

    def delete(self) -> RecallReport:
        """Empty the record on disk and in memory, with its rates and counters; what waits to be added is discarded.

        Raises RecallConflictError where this server does not write the record, RecallDeleteError when a chunk stayed.
        """
        self._may_empty()
        call = _Call(delete=True)
        with self._wake:
            self._generation += 1
            self._jobs = deque(job for job in self._jobs if isinstance(job, _Call))
            self._queued_runs = self._queued_bytes = 0
        self._ask(call)
        call.done.wait()
        # Another server may have taken a folder that could not be taken at the start.
        self._may_empty()
        if self._stored.state == "delete-failed":
            raise RecallDeleteError(self._stored.reason)
        if not call.emptied:
            raise RecallDeleteError("The record was not emptied: the server is ending, or its log says why.")
        return self.report()

    def _may_empty(self) -> None:
        if (refusal := _REFUSALS.get(self._stored.state)) is not None:
            raise RecallConflictError(refusal)

    def _ask(self, call: _Call) -> None:
        with self._wake:
            if self._deadline is not None:
                call.done.set()
                return
            self._jobs.append(call)
            self._wake.notify()

    # -- the writer's thread -------------------------------------------------------------------------------------

    def _main(self) -> None:
        self._guarded("loading the record", self._load)
        self._index.whole = True
        self._loaded.set()
        while (job := self._next()) is not None:
            if isinstance(job, _Run):
                self._guarded("adding to the record", partial(self._add, job))
                continue
            if job.delete:
                self._guarded("emptying the record", partial(self._empty, job))
            job.done.set()
        self._close_store()
        with self._wake:
            left, self._jobs = self._jobs, deque()
        for job in left:
            if isinstance(job, _Call):
                job.done.set()

    def _next(self) -> _Run | _Call | None:
        """The next job; None when the end was asked for and nothing waits any more, or its time is over."""
        while True:
            with self._wake:
                if self._deadline is not None and (not self._jobs or self._clock.monotonic() >= self._deadline):
                    return None
                if not self._jobs:
                    self._wake.wait(self._pause())
                if self._jobs:
                    job = self._jobs.popleft()
                    if isinstance(job, _Run):
                        self._queued_runs -= 1
                        self._queued_bytes -= ID_BYTES * job.ids
                    return job
                if self._deadline is not None:
                    return None
            self._guarded("looking after the record", self._look)

    def _pause(self) -> float | None:
        """How long an idle writer sleeps: for good once everything is durable and nothing is wrong."""
        restless = self._stored.state == "paused" or self._clock.monotonic() - self._worked_at < _RESTLESS_S
        return _LOOK_S if restless else None

    def _look(self) -> None:
        self._looked_at = self._clock.monotonic()
        self._stored = self._store.sync()

    def _load(self) -> None:
        for chunk in self._store.chunks():
            with self._wake:
                if self._deadline is not None or any(isinstance(job, _Call) and job.delete for job in self._jobs):
                    return
            self._index.load(chunk.sequence, chunk.ids)
        self._stored = self._store.state()

    def _add(self, run: _Run) -> None:
        if run.began != self._generation:
            return
        pieces = novel(_ids(run, self._identity.vocabulary), self._index)
        written = all(self._append(piece) for piece in pieces.pieces)
        added = pieces.added if written else 0
        counts = self._counts
        self._counts = replace(counts, added=counts.added + added, held=counts.held + pieces.held)
        self._dropped += pieces.added - added
        self._worked_at = self._clock.monotonic()
        self._stored = self._store.state()
        if self._worked_at - self._looked_at >= _LOOK_S:
            # Runs that are held already bring no piece along, and may keep the writer from ever being idle.
            self._look()

    def _append(self, piece: Ids) -> bool:
        """Disk first, so that memory never offers what was not written; whether the piece was added."""
        appended = self._store.append(piece)
        self._evict(appended.evicted)
        for part in appended.parts:
            self._index.add(part)
        return bool(appended.parts)

    def _evict(self, sequences: Sequence[int]) -> None:
        if not sequences:
            return
        before = self._index.ids
        self._index.drop(sequences)
        self._counts = replace(self._counts, evicted=self._counts.evicted + before - self._index.ids)

    def _empty(self, call: _Call) -> None:
        self._index.clear()
        self._policy.reset()
        self._counts, self._dropped = _Counts(), 0
        self._stored = self._store.delete_all()
        self._worked_at = self._clock.monotonic()
        call.emptied = True

    def _close_store(self) -> None:
        self._guarded("closing the record", self._store.close)

    def _guarded(self, doing: str, act: Callable[[], None]) -> None:
        """A fault costs what was being done, never the thread; its text may hold anything and is not logged."""
        try:
            act()
        except Exception as fault:
            self._log(f"recall: {doing} failed: {named(fault)}")


def _ids(run: _Run, vocabulary: int) -> Ids:
    """The run's ids; a separator stands for one that is outside the vocabulary, which no draft could be."""
    # Through 64 bits, so that an id of any size is seen as what it is; and a little at a time, since a list becomes an
    # array in one step in which no other thread runs.
    ids = np.empty(run.ids, dtype=np.int64)
    for at in range(0, run.ids, _AT_ONCE):
        ids[at : at + _AT_ONCE] = run.tokens[run.start + at : run.start + at + _AT_ONCE]
    ids[(ids < 0) | (ids >= vocabulary)] = SEPARATOR
    return ids.astype(np.int32)


_REFUSALS = {
    "read-only": "This server reads the record only (--recall-read-only); empty it from a server that may write it.",
    "second": "Another server writes this record; send the DELETE to that server.",
}
