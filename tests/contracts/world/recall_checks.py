"""The record of ids: what was appended is there after closing and opening again; one writer at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.stores import Appended, RecallStore
from tensorfold.domain.recall.layout import LEAD_IDS, SEPARATOR, Ids
from tests.contracts.candidates import refuses, sentence


@dataclass(frozen=True, slots=True)
class RecallSubject:
    """One folder, and stores over it as other processes would make them.

    `store` makes a writer, `reader` one that only reads, `other` one of another tokenizer. `hinder(True)` keeps
    anything from being added until `hinder(False)`; `stick(sequence)` keeps one chunk from being removed until
    `stick(None)`. A chunk holds `chunk_ids` values, the folder `most_chunks` chunks. Ids are below 1,000,000.
    """

    store: Callable[[], RecallStore]
    reader: Callable[[], RecallStore]
    other: Callable[[], RecallStore]
    hinder: Callable[[bool], None]
    stick: Callable[[int | None], None]
    chunk_ids: int
    most_chunks: int


def _run(count: int, first: int = 0) -> Ids:
    return np.arange(first, first + count, dtype=np.int32) % 999_983


def _pieces(store: RecallStore) -> list[list[int]]:
    """What lies between separators and the ends of chunks, oldest first."""
    found: list[list[int]] = []
    for chunk in store.chunks():
        found.append([])
        for value in chunk.ids.tolist():
            if value == SEPARATOR:
                found.append([])
            else:
                found[-1].append(value)
    return [piece for piece in found if piece]


def _check_places(store: RecallStore, added: Appended) -> None:
    values = {chunk.sequence: chunk.ids.tolist() for chunk in store.chunks()}
    for part in added.parts:
        end = part.offset + len(part.ids)
        assert values[part.sequence][part.offset : end] == part.ids.tolist()
        assert values[part.sequence][end : end + 1] in ([], [SEPARATOR])


def a_fresh_record_is_on_and_empty(subject: RecallSubject) -> None:
    """And holds nothing."""
    store = subject.store()
    state = store.open()
    assert state == store.state() and (state.state, state.bytes_on_disk, state.reason) == ("on", 0, "")
    assert _pieces(store) == []
    store.close()
    assert store.state().state == "off"


def pieces_are_kept_in_order_over_closing(subject: RecallSubject) -> None:
    """Every id, oldest first, also for a store that only opens later; nothing of an empty piece."""
    pieces = [_run(20), _run(70, 500_000), np.zeros(40, np.int32), _run(17, 30)]
    store = subject.store()
    store.open()
    for piece in [*pieces[:2], pieces[0][:0]]:
        store.append(piece)
    store.close()
    later = subject.store()
    assert later.open().bytes_on_disk > 0
    for piece in pieces[2:]:
        later.append(piece)
    assert _pieces(later) == [piece.tolist() for piece in pieces]
    later.close()


def a_piece_lies_where_its_parts_say(subject: RecallSubject) -> None:
    """With a separator behind it."""
    store = subject.store()
    store.open()
    for count in (17, 300, 64):
        added = store.append(_run(count, 7))
        assert [part.ids.tolist() for part in added.parts] == [_run(count, 7).tolist()] and added.evicted == ()
        _check_places(store, added)
    store.close()


def a_piece_is_cut_where_its_chunk_ends(subject: RecallSubject) -> None:
    """Its second part begins with the end of the first; a piece that just fits is not cut."""
    store = subject.store()
    store.open()
    assert len(store.append(_run(subject.chunk_ids - 100)).parts) == 1
    added = store.append(_run(200, 500_000))
    first, second = added.parts
    assert second.sequence > first.sequence and second.offset == 0
    assert first.ids[-LEAD_IDS:].tolist() == second.ids[:LEAD_IDS].tolist()
    assert [*first.ids, *second.ids[LEAD_IDS:]] == _run(200, 500_000).tolist()
    _check_places(store, added)
    used = second.offset + len(second.ids) + 1
    whole = store.append(_run(subject.chunk_ids - used))
    assert [len(part.ids) for part in whole.parts] == [subject.chunk_ids - used]
    _check_places(store, whole)
    assert store.append(_run(20)).parts[0].sequence > second.sequence
    store.close()


def the_oldest_chunks_make_room(subject: RecallSubject) -> None:
    """They are named once, and gone for whoever opens later."""
    store = subject.store()
    store.open()
    sequences: list[int] = []
    evicted: list[int] = []
    for at in range(subject.most_chunks + 3):
        added = store.append(_run(subject.chunk_ids, at))
        sequences += [part.sequence for part in added.parts]
        evicted += added.evicted
        assert store.state().bytes_on_disk <= 4 * subject.chunk_ids * subject.most_chunks
    assert sequences == sorted(set(sequences)) and evicted == sequences[:3]
    store.close()
    later = subject.store()
    later.open()
    assert [chunk.sequence for chunk in later.chunks()] == sequences[3:]
    later.close()


def a_second_store_reads_and_does_not_write(subject: RecallSubject) -> None:
    """Nor delete, also when the first one closed."""
    first, second = subject.store(), subject.store()
    first.open()
    first.append(_run(20))
    state = second.open()
    assert state.state == "second" and state.reason and state.bytes_on_disk == first.state().bytes_on_disk
    assert _pieces(second) == [_run(20).tolist()]
    assert second.append(_run(30)).parts == ()
    first.close()
    assert second.sync().state == second.delete_all().state == "second"
    assert second.append(_run(30)).parts == ()
    second.close()
    third = subject.store()
    assert third.open().state == "on"
    assert _pieces(third) == [_run(20).tolist()]
    third.close()


def a_reader_changes_nothing_and_takes_no_lock(subject: RecallSubject) -> None:
    """On a folder without a record it is empty."""
    reader = subject.reader()
    state = reader.open()
    assert (state.state, state.bytes_on_disk) == ("read-only", 0) and _pieces(reader) == []
    writer = subject.store()
    assert writer.open().state == "on"
    writer.append(_run(20))
    reader.close()
    later = subject.reader()
    assert later.open().state == "read-only"
    assert later.append(_run(30)).parts == ()
    assert later.sync().state == later.delete_all().state == "read-only"
    assert _pieces(later) == [_run(20).tolist()]
    later.close()
    writer.close()


def another_tokenizer_is_refused(subject: RecallSubject) -> None:
    """In one sentence, and the record stays as it was."""
    store = subject.store()
    store.open()
    store.append(_run(20))
    sentence(refuses(subject.other().open, RefusedError))
    store.close()
    sentence(refuses(subject.other().open, RefusedError))
    later = subject.store()
    later.open()
    assert _pieces(later) == [_run(20).tolist()]
    later.close()


def a_trouble_pauses_and_passes(subject: RecallSubject) -> None:
    """While it lasts nothing is added, what is there stays, and a reason is given."""
    store = subject.store()
    store.open()
    store.append(_run(20))
    subject.hinder(True)
    assert store.append(_run(30)).parts == ()
    assert store.state().state == store.sync().state == "paused" and store.state().reason
    assert _pieces(store) == [_run(20).tolist()]
    subject.hinder(False)
    assert store.sync().state == "on" and store.state().reason == ""
    assert len(store.append(_run(40)).parts) == 1
    assert _pieces(store) == [_run(20).tolist(), _run(40).tolist()]
    store.close()


def deleting_leaves_an_empty_record_that_goes_on(subject: RecallSubject) -> None:
    """Nothing of the old ids stays, and a number is never used again."""
    store = subject.store()
    store.open()
    (part,) = store.append(_run(20)).parts
    state = store.delete_all()
    assert (state.state, state.bytes_on_disk) == ("on", 0) and _pieces(store) == []
    (again,) = store.append(_run(30)).parts
    assert again.sequence > part.sequence
    store.close()
    later = subject.store()
    later.open()
    assert _pieces(later) == [_run(30).tolist()]
    later.close()


def a_chunk_that_stays_is_named_until_it_goes(subject: RecallSubject) -> None:
    """Nothing is added meanwhile; the other chunks are gone."""
    store = subject.store()
    store.open()
    first, second = (store.append(_run(subject.chunk_ids, at)).parts[0].sequence for at in range(2))
    subject.stick(first)
    state = store.delete_all()
    assert state.state == "delete-failed" and f"{first:08d}.ids" in state.reason and state.bytes_on_disk > 0
    assert [chunk.sequence for chunk in store.chunks()] == [first] != [second]
    assert store.append(_run(20)).parts == () and store.sync().state == "delete-failed"
    subject.stick(None)
    assert store.sync().state == "delete-failed"
    assert store.delete_all().state == "on" and _pieces(store) == []
    assert len(store.append(_run(20)).parts) == 1
    store.close()


def closing_twice_is_harmless(subject: RecallSubject) -> None:
    """And gives the lock back once."""
    store = subject.store()
    store.open()
    store.close()
    store.close()
    later = subject.store()
    assert later.open().state == "on"
    later.close()
