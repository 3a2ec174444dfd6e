"""Sixteen full chunks on a disk, and streams that ask for what stands there: often, once, or nowhere.

Five chunks are words of the standard library's source, five ids with the frequencies of language, six plain chance but
for a stretch of the last, which is the same few ids over and over. Passages of 16 to 127 ids, which a record may hold
any number of times, stand in thousands of places.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tensorfold.adapters.filesystem.record_format import IDENTITY, chunk_name, decode, encode
from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
from tensorfold.adapters.filesystem.record_store import RecordStore
from tensorfold.adapters.system.clock import SystemClock
from tensorfold.application.ports.stores import StoredChunk
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES, CHUNK_IDS, SEPARATOR, Ids
from tests.benchmarks.replay.speech import word_speech
from tests.benchmarks.replay.texts import LIBRARY

CHUNKS = 16
VOCABULARY = 1 << 17
PIECE = 2000
PASSAGES = 100
CONTEXT = 4000
LOOP = np.arange(30, dtype=np.int32)
LOOPING = 50_000
SHARED = (16, 30, 100, 1000, CONTEXT)
OWNER = RecordIdentity("0" * 64, VOCABULARY, "none")


def passages() -> list[Ids]:
    """Texts that come again and again."""
    rng = np.random.default_rng(11)
    return [rng.integers(0, VOCABULARY, length, dtype=np.int32) for length in rng.integers(16, 128, PASSAGES)]


def words() -> Ids:
    """The library's modules, each a piece, until five chunks are full; again from the start if there are too few."""
    in_words = word_speech().encode
    ids: list[int] = []
    for path in sorted(LIBRARY.rglob("*.py")):
        if len(ids) < 5 * CHUNK_IDS and "site-packages" not in path.parts:
            ids += [*in_words(path.read_text(encoding="utf-8", errors="replace")), SEPARATOR]
    return np.resize(np.array(ids, dtype=np.int32), 5 * CHUNK_IDS)


def chunks() -> Iterator[Ids]:
    """All ids of the record, chunk by chunk."""
    rng = np.random.default_rng(12)
    common = passages()
    yield from words().reshape(5, CHUNK_IDS)
    names = rng.permutation(VOCABULARY).astype(np.int32)
    for number in range(CHUNKS - 5):
        if number < 5:
            ids = names[(rng.zipf(1.2, CHUNK_IDS) - 1) % VOCABULARY]
        else:
            ids = rng.integers(0, VOCABULARY, CHUNK_IDS, dtype=np.int32)
        for at in rng.integers(0, CHUNK_IDS - PIECE, 2000):
            passage = common[int(rng.integers(PASSAGES))]
            ids[at : at + len(passage)] = passage
        ids[PIECE - 1 :: PIECE] = SEPARATOR
        if number == CHUNKS - 6:
            ids[-LOOPING:] = np.resize(LOOP, LOOPING)
        yield ids


def write(folder: Path) -> None:
    """The record's files."""
    (folder / IDENTITY).write_text(OWNER.text())
    for sequence, ids in enumerate(chunks(), start=1):
        (folder / chunk_name(sequence)).write_bytes(encode(ids, VOCABULARY))


def stored(folder: Path) -> Iterator[StoredChunk]:
    """The record's chunks, read as a server reads them."""
    store = RecordStore(
        PosixRecordFiles(folder),
        OWNER,
        budget_bytes=CHUNKS * CHUNK_BYTES,
        read_only=True,
        free_bytes=lambda: 1 << 40,
        clock=SystemClock(),
        log=lambda line: None,
        folder=str(folder),
    )
    store.open()
    yield from store.chunks()


def streams(folder: Path, seed: int, count: int) -> Iterator[tuple[str, list[int]]]:
    """(what is asked for, a stream's tokens) in turn: new text, repeated passages, and held text of every kind."""
    rng = np.random.default_rng(seed)
    common = passages()
    texts = [decode((folder / chunk_name(at)).read_bytes(), VOCABULARY) for at in range(1, CHUNKS + 1)]
    for number in range(count):
        new = rng.integers(0, VOCABULARY, CONTEXT).tolist()
        if number % 3 == 0:
            yield "new", new
        elif number % 3 == 1:
            passage = common[int(rng.integers(PASSAGES))]
            yield "often", new + passage[: int(rng.integers(16, len(passage) + 1))].tolist()
        else:
            text = texts[int(rng.integers(len(texts)))]
            end = int(rng.integers(CONTEXT, CHUNK_IDS))
            yield "held", new + text[end - int(rng.choice(SHARED)) : end].tolist()


def loops(count: int) -> Iterator[tuple[str, list[int]]]:
    """Streams that go round in the few ids that the record holds over and over."""
    for number in range(count):
        yield "loop", np.resize(LOOP, CONTEXT - number % 97).tolist()
