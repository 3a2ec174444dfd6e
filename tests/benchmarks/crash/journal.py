"""What was written to a record, what of it must be there after a cut, and what must not: the truth that images meet.

It reads the documented format by itself: words of four bytes, little-endian, an id stored as id + 1; a zero, and all
that is no id of the vocabulary, separates pieces. Knows no store, disk or process; it is told what happens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tensorfold.domain.recall.layout import ID_BYTES, LEAD_IDS, SEPARATOR, Ids, Part

CHUNK_NAME = re.compile(r"(\d{8})\.ids")


def chunk_sequence(name: str) -> int | None:
    """The sequence number of a chunk's file name; None for other names."""
    match = CHUNK_NAME.fullmatch(name)
    return int(match[1]) if match else None


def decode(data: bytes, vocabulary: int) -> Ids:
    """The ids of a chunk file, separators included; an unfinished last word is left out."""
    words = np.frombuffer(data[: len(data) // ID_BYTES * ID_BYTES], dtype="<i4").astype(np.int64) - 1
    words[(words < 0) | (words >= vocabulary)] = SEPARATOR
    return words.astype(np.int32)


@dataclass(slots=True)
class Written:
    """One chunk: `words` as they were written last, `filled` of them so far, `safe` of them durable by promise.

    `older` holds what was cut off and may come back: (offset, words). `removed` once its removal was begun.
    """

    words: Ids
    filled: int = 0
    safe: int = 0
    removed: bool = False
    older: list[tuple[int, Ids]] = field(default_factory=list)


class Journal:
    """The truth about one record with chunks of `chunk_ids`. `faults` are promises the writer broke while it wrote."""

    def __init__(self, chunk_ids: int, vocabulary: int) -> None:
        self.chunk_ids = chunk_ids
        self.vocabulary = vocabulary
        self.chunks: dict[int, Written] = {}
        self.faults: list[str] = []

    @classmethod
    def after(cls, files: Mapping[str, bytes], loaded: Mapping[int, Ids], chunk_ids: int, vocabulary: int) -> Journal:
        """The truth when a machine has come back with `files`, of which `loaded` was read: all that is durable."""
        journal = cls(chunk_ids, vocabulary)
        for name, data in files.items():
            sequence = chunk_sequence(name)
            if sequence is not None:
                words = decode(data[: chunk_ids * ID_BYTES], vocabulary)
                chunk = journal._chunk(sequence)
                chunk.words[: len(words)] = words
                chunk.filled = len(words)
                chunk.safe = len(words) if sequence in loaded else 0
                chunk.removed = sequence not in loaded
        return journal

    # Told before a change

    def writing(self, name: str, at: int, data: bytes) -> None:
        """Words are about to be written."""
        sequence = chunk_sequence(name)
        if sequence is None:
            return
        chunk = self._chunk(sequence)
        words = decode(data, self.vocabulary)
        if at % ID_BYTES or len(data) % ID_BYTES or at // ID_BYTES + len(words) > self.chunk_ids:
            self.faults.append(f"{len(data)} bytes were written at byte {at} of {name}")
            return
        chunk.words[at // ID_BYTES : at // ID_BYTES + len(words)] = words
        chunk.filled = at // ID_BYTES + len(words)

    def cutting(self, name: str, size: int) -> None:
        """A chunk is about to be cut; what is cut off may come back until it is overwritten."""
        sequence = chunk_sequence(name)
        if sequence is not None:
            chunk, keep = self._chunk(sequence), size // ID_BYTES
            chunk.older.append((keep, chunk.words[keep:].copy()))
            chunk.words[keep:] = SEPARATOR
            if keep < chunk.safe:
                self.faults.append(f"{name} was cut to {keep} ids, {chunk.safe} were durable")
            chunk.filled = min(chunk.filled, keep)

    def removing(self, name: str) -> None:
        """A chunk is about to be removed: it may be gone from now on, and may come back until that is durable."""
        sequence = chunk_sequence(name)
        if sequence is not None:
            self._chunk(sequence).removed = True

    # Told after a call of the store returned

    def appended(self, piece: Ids, parts: Sequence[Part], whole_piece: bool = True) -> None:
        """A piece was added as `parts`, or its first ids: they lie where they should, apart from their neighbours."""
        if not parts:
            return
        whole = parts[0].ids
        for part in parts[1:]:
            overlap = min(LEAD_IDS, len(whole))
            if part.ids[:overlap].tolist() != whole[-overlap:].tolist():
                self.faults.append(f"chunk {part.sequence} does not begin with the last ids of the part before it")
            whole = np.concatenate([whole, part.ids[overlap:]])
        if whole.tolist() != piece[: len(whole)].tolist() or (whole_piece and len(whole) < len(piece)):
            self.faults.append(f"the parts of a piece of {len(piece)} ids are not the piece")
        for part in parts:
            self._placed(part)
        for sequence, chunk in self.chunks.items():
            if sequence < parts[-1].sequence:
                chunk.safe = chunk.filled

    def fault(self, sentence: str) -> None:
        """A promise was broken while the writer ran."""
        self.faults.append(sentence)

    def synced(self) -> None:
        """Everything written so far was promised to be durable."""
        for chunk in self.chunks.values():
            chunk.safe = chunk.filled

    def deleted(self) -> None:
        """The record was emptied, and the client was told."""
        self.chunks.clear()

    def _placed(self, part: Part) -> None:
        chunk, end = self._chunk(part.sequence), part.offset + len(part.ids)
        around = chunk.words[max(part.offset - 1, 0) : end + 1].tolist()
        expected = part.ids.tolist()
        if part.offset > 0:
            expected = [SEPARATOR, *expected]
        if end < self.chunk_ids:
            expected = [*expected, SEPARATOR]
        if around != expected:
            self.faults.append(f"a part at {part.offset} of chunk {part.sequence} is not there, between separators")

    def _chunk(self, sequence: int) -> Written:
        if sequence not in self.chunks:
            self.chunks[sequence] = Written(np.full(self.chunk_ids, SEPARATOR, dtype=np.int32))
        return self.chunks[sequence]

    # What a reader found

    def strange(self, sequence: int, ids: Ids) -> str | None:
        """What is wrong with a loaded chunk: a run of ids that was never written in one go at that place."""
        chunk = self.chunks.get(sequence)
        if chunk is None:
            return f"chunk {sequence} holds {np.count_nonzero(ids != SEPARATOR)} ids, none may" if _any(ids) else None
        if len(ids) > self.chunk_ids:
            return f"chunk {sequence} has {len(ids)} words"
        if bool(np.all((ids == chunk.words[: len(ids)]) | (ids == SEPARATOR))):
            return None
        for at, run in runs(ids):
            if not any(_holds(offset, words, at, run) for offset, words in [(0, chunk.words), *chunk.older]):
                return f"chunk {sequence} has {len(run)} ids at {at} that were never written there in one go"
        return None

    def missing(self, loaded: Mapping[int, Ids], evicted: Iterable[int] = ()) -> tuple[int, list[str]]:
        """How many ids written are not in `loaded`, and which of them a promise covered.

        `evicted` are chunks that opening may have dropped to hold the budget.
        """
        lost, broken = 0, []
        free = set(evicted)
        for sequence, chunk in self.chunks.items():
            if sequence in free or (chunk.removed and sequence not in loaded):
                continue
            words = chunk.words[: chunk.filled]
            there = np.full(chunk.filled, SEPARATOR, dtype=np.int32)
            got = loaded.get(sequence, words[:0])[: chunk.filled]
            there[: len(got)] = got
            gone = (words != there) & (words != SEPARATOR)
            lost += int(np.count_nonzero(gone))
            inside = int(np.count_nonzero(gone[: chunk.safe]))
            if inside and not chunk.removed:
                broken.append(f"{inside} of {chunk.safe} durable ids of chunk {sequence} are lost")
        return lost, broken


def runs(ids: Ids) -> list[tuple[int, Ids]]:
    """Each run of ids between separators, with its offset."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], (ids != SEPARATOR).astype(np.int8), [0]])))
    return [(int(low), ids[low:high]) for low, high in zip(edges[::2], edges[1::2], strict=True)]


def _any(ids: Ids) -> bool:
    return bool(np.any(ids != SEPARATOR))


def _holds(offset: int, words: Ids, at: int, run: Ids) -> bool:
    low = at - offset
    return low >= 0 and words[low : low + len(run)].tolist() == run.tolist()
