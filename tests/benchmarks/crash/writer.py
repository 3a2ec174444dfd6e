"""A record's writer on any folder, with small chunks and a clock of its own, whose every step goes into a journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_store import RecordStore
from tensorfold.application.ports.stores import StoreState
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import ID_BYTES, Ids, Part
from tests.benchmarks.crash.journal import chunk_sequence
from tests.benchmarks.crash.watched import Listener, WatchedFiles
from tests.fakes.clock import FakeClock

IDLE_S = 5.0
"""Without writes for this long, what was written is durable at the next look."""
ENOUGH_FREE = 1 << 40


@dataclass(frozen=True, slots=True)
class Shape:
    """Chunks of `chunk_ids`, of which a budget holds `chunks`; ids below `vocabulary`."""

    chunk_ids: int
    chunks: int
    vocabulary: int

    @property
    def budget_bytes(self) -> int:
        """The budget, in bytes."""
        return self.chunks * self.chunk_ids * ID_BYTES

    @property
    def identity(self) -> RecordIdentity:
        """One tokenizer for all."""
        return RecordIdentity("5a" * 32, self.vocabulary, "hash")


def store_on(files: RecordFiles, shape: Shape, clock: FakeClock, *, read_only: bool = False) -> RecordStore:
    """A store of the product on `files`, not yet opened."""
    return RecordStore(
        files, shape.identity, budget_bytes=shape.budget_bytes, read_only=read_only, free_bytes=lambda: ENOUGH_FREE,
        clock=clock, log=lambda line: None, folder="the record", chunk_ids=shape.chunk_ids,
    )  # fmt: skip


class Account(Listener, Protocol):
    """Hears of each step too, after it was taken."""

    def appended(self, piece: Ids, parts: Sequence[Part], whole_piece: bool = True) -> None:
        """A piece was added, or its first ids."""
        ...

    def synced(self) -> None:
        """All is durable by promise."""
        ...

    def deleted(self) -> None:
        """The record was emptied."""
        ...

    def fault(self, sentence: str) -> None:
        """A promise was broken."""
        ...


class Writer:
    """One server's use of a record. Steps may be cut off at any change that reaches `files`."""

    def __init__(self, files: RecordFiles, shape: Shape, journal: Account) -> None:
        self.journal = journal
        self._files = files
        self._budget = shape.budget_bytes
        self.clock = FakeClock()
        self.store = store_on(WatchedFiles(files, journal), shape, self.clock)

    def open(self) -> dict[int, Ids]:
        """Take the record and read it; by sequence. A record that may not be written is a fault."""
        state = self.store.open()
        if state.state != "on":
            self.journal.fault(f"opened as {state.state}: {state.reason}")
        self._hold_budget()
        return {chunk.sequence: chunk.ids for chunk in self.store.chunks()}

    def append(self, piece: Ids) -> None:
        """Add a piece."""
        appended = self.store.append(piece)
        self.journal.appended(piece, appended.parts, whole_piece=self.store.state().state == "on")
        self._hold_budget()

    def idle(self) -> None:
        """Let the time pass after which everything is durable."""
        self.clock.advance(IDLE_S)
        if self.store.sync().state == "on":
            self.journal.synced()

    def delete(self) -> StoreState:
        """Empty the record."""
        state = self.store.delete_all()
        if state.state == "on":
            self.journal.deleted()
        else:
            self.journal.fault(f"emptying left it {state.state}: {state.reason}")
        return state

    def close(self) -> None:
        """End in order."""
        self.store.close()
        self.journal.synced()

    def _hold_budget(self) -> None:
        held = sum(entry.size for entry in self._files.entries() if chunk_sequence(entry.name) is not None)
        if held > self._budget:
            self.journal.fault(f"{held} bytes are held, the budget is {self._budget}")
        if held != self.store.state().bytes_on_disk:
            self.journal.fault(f"{held} bytes are held, {self.store.state().bytes_on_disk} are reported")
