"""Small records for tests: chunks of 128 ids, three of them, in memory or in a real folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tensorfold.adapters.filesystem.record_files import RecordFiles
from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
from tensorfold.adapters.filesystem.record_store import RecordStore
from tensorfold.application.ports.stores import RecallStore
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import SEPARATOR, Ids
from tests.fakes.clock import FakeClock
from tests.fakes.record_files import FaultyRecordFiles, MemoryFolder, MemoryRecordFiles

CHUNK = 128
CHUNKS = 3
VOCABULARY = 50_000
IDENTITY = RecordIdentity("ab" * 32, VOCABULARY, "Qwen3.8-27B")
GIB = 1 << 30


@dataclass(slots=True)
class Bench:
    """A store over files that can be made to fail, with a clock, free space and a log that tests own."""

    files: FaultyRecordFiles
    clock: FakeClock = field(default_factory=FakeClock)
    free: int = 100 * GIB
    log: list[str] = field(default_factory=list)
    store: RecordStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = self.another()

    def another(self, identity: RecordIdentity = IDENTITY, **settings: Any) -> RecordStore:
        """One more store over the same files."""
        options: dict[str, Any] = {"budget_bytes": CHUNKS * CHUNK * 4, "read_only": False, "chunk_ids": CHUNK}
        return RecordStore(
            self.files,
            identity,
            free_bytes=lambda: self.free,
            clock=self.clock,
            log=self.log.append,
            folder="the folder",
            **options | settings,
        )

    def fail(self, *calls: str, number: int, name: str = "") -> None:
        """From now on these calls fail, of files whose name contains `name`."""
        self.files.fails = lambda call, of: number if call in calls and name in of else None

    def heal(self) -> None:
        """Nothing fails any more."""
        self.files.fails = lambda call, of: None


def in_memory(folder: MemoryFolder | None = None) -> Bench:
    """A bench over a folder in memory."""
    return Bench(FaultyRecordFiles(MemoryRecordFiles(folder)))


def on_disk(folder: Path) -> Bench:
    """A bench over a real folder."""
    files: RecordFiles = PosixRecordFiles(folder)
    return Bench(FaultyRecordFiles(files))


def run(count: int, first: int = 1000) -> Ids:
    """`count` ids, each one more than the last."""
    return np.arange(first, first + count, dtype=np.int32)


def chunk(*pieces: Sequence[int] | Ids, end: bool = True) -> bytes:
    """The bytes of pieces as a chunk file has them, written here in the simplest way."""
    values: list[int] = []
    for piece in pieces:
        values += [int(token) + 1 for token in piece] + [0]
    return b"".join(value.to_bytes(4, "little") for value in (values if end else values[:-1]))


def pieces(store: RecallStore) -> list[list[int]]:
    """What lies between separators and the ends of chunks, oldest first."""
    found: list[list[int]] = []
    for stored in store.chunks():
        found.append([])
        for value in stored.ids.tolist():
            if value == SEPARATOR:
                found.append([])
            else:
                found[-1].append(value)
    return [piece for piece in found if piece]


def record_of(chunks: dict[int, bytes], **others: bytes) -> MemoryFolder:
    """A folder with an identity and chunks by number."""
    contents = {"identity": IDENTITY.text().encode(), "lock": b""}
    contents |= {f"{sequence:08d}.ids": data for sequence, data in chunks.items()}
    return MemoryFolder(contents | others)
