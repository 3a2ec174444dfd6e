"""What of a run is stored: everything new once, nothing twice, and enough around it to be found and left."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.layout import CHUNK_IDS, HELD_IDS, KEY_IDS, LEAD_IDS, LEAST_RUN, SEPARATOR, TAIL_IDS, Ids
from tensorfold.domain.recall.pieces import ANCHOR_IDS, Pieces, novel
from tests.domain.recall.records import VOCABULARY, Record, empty, ids, text

A, B, C = text(1, 3000), text(2, 3000), text(3, 3000)


def keep(record: Record, run: Ids) -> Pieces:
    """Store what is new of a run."""
    pieces = novel(run, record.index)
    for piece in pieces.pieces:
        record.store(piece)
    return pieces


def kept(*runs: Ids, room: int = CHUNK_IDS) -> Record:
    """A record of these runs, the first of which begins `room` ids before its chunk's end."""
    record = Record(empty())
    record.leave(room)
    for run in runs:
        keep(record, run)
    return record


def listed(pieces: Pieces) -> list[list[int]]:
    return [piece.tolist() for piece in pieces.pieces]


def after(record: Record, run: Ids) -> tuple[int, int, list[list[int]]]:
    pieces = novel(run, record.index)
    return pieces.added, pieces.held, listed(pieces)


def test_a_run_that_is_new_is_stored_whole() -> None:
    assert after(kept(), A[:500]) == (500, 0, [A[:500].tolist()])


@pytest.mark.parametrize(("length", "added"), [(0, 0), (1, 0), (16, 0), (17, 17), (18, 18)])
def test_a_run_that_could_never_be_copied_from_is_left_out(length: int, added: int) -> None:
    pieces = novel(A[:length], empty())
    assert (pieces.added, pieces.held, len(pieces.pieces)) == (added, 0, int(added > 0))


@pytest.mark.parametrize("length", [17, 18, 20, 31, 64, 111, 112, 113, 127, 128, 129, 200, 224, 240, 1000, 3000])
def test_the_same_run_again_adds_nothing(length: int) -> None:
    record = kept(B[:700], A[:length], C[:700])
    assert after(record, A[:length]) == (0, length, [])


@pytest.mark.parametrize("start", [0, 1, 15, 16, 17, 100, 111, 112, 113, 500])
@pytest.mark.parametrize("length", [17, 20, 100, 400])
def test_a_part_of_a_run_adds_nothing(start: int, length: int) -> None:
    assert after(kept(A[:1000]), A[start : start + length]) == (0, length, [])


@pytest.mark.parametrize("room", [1, 16, 17, 18, 40, 63, 64, 65, 79, 80, 81, 100, 127, 128, 129, 200, 483, 499, 500])
@pytest.mark.parametrize("length", [20, 100, 500])
def test_a_run_that_was_cut_at_the_end_of_a_chunk_adds_nothing_again(room: int, length: int) -> None:
    record = kept(A[:length], room=room)
    assert len(record.chunks) == (1 if length <= room else 2 - (room < LEAST_RUN))
    assert after(record, A[:length]) == (0, length, [])
    assert after(record, A[1 : length - 1]) == (0, length - 2, [])


@pytest.mark.slow
def test_a_run_of_more_than_a_chunk_adds_nothing_again() -> None:
    run = text(8, CHUNK_IDS + 300_000, 1 << 20)
    record = Record(RecordIndex(1 << 24, 1 << 20))
    record.store(text(9, 1000, 1 << 20))
    assert keep(record, run).added == len(run)
    assert len(record.chunks) == 2
    assert novel(run, record.index) == Pieces((), 0, len(run))
    assert novel(run[123_456:], record.index) == Pieces((), 0, len(run) - 123_456)


def test_a_hundred_thousand_ids_add_nothing_again() -> None:
    run = text(8, 100_000, 50_000)
    run[40_000:60_000] = run[:20_000]
    run[70_000:75_000] = 7
    run[80_000:90_000] = np.tile(run[:250], 40)
    record = Record(empty(50_000))
    record.leave(30_000)
    assert keep(record, run).added == len(run)
    assert novel(run, record.index) == Pieces((), 0, len(run))


@pytest.mark.parametrize("value", [0, 5])
@pytest.mark.parametrize("length", [17, 100, 127, 128, 1000, 20_000])
def test_one_id_over_and_over_adds_nothing_again(value: int, length: int) -> None:
    run = np.full(length, value, dtype=np.int32)
    assert after(kept(run), run) == (0, length, [])


@pytest.mark.parametrize("seam", [None, 40, 64, 100])
@pytest.mark.parametrize(("count", "left_out"), [(100, False), (127, False), (128, True), (129, True), (300, True)])
@pytest.mark.parametrize("before", [0, 1, 50, 97, 111, 112, 113, 300])
@pytest.mark.parametrize("behind", [0, 1, 200])
@pytest.mark.slow
def test_held_ids_are_left_out_from_a_hundred_and_twenty_eight_on(
    before: int, behind: int, count: int, left_out: bool, seam: int | None
) -> None:
    if before == behind == 0:
        return
    # The text that is held may have been cut by a chunk's end after `seam` of the ids that come again.
    record = kept(A[:1000], room=CHUNK_IDS if seam is None else 500 + seam)
    assert len(record.chunks) == (1 if seam is None else 2)
    # Neither neighbour goes on as the held text does.
    parts = [B[:before].copy(), A[500 : 500 + count], C[:behind].copy()]
    if before:
        parts[0][-1] = (A[499] + 1) % VOCABULARY
    if behind:
        parts[2][0] = (A[500 + count] + 1) % VOCABULARY
    run = np.concatenate(parts)
    if not left_out:
        assert after(record, run) == (len(run), 0, [run.tolist()])
        return
    pieces = []
    if before:
        pieces.append(run[: before + TAIL_IDS].tolist())
    if behind:
        pieces.append(run[before + count - LEAD_IDS :].tolist())
    assert after(record, run) == (before + behind, count, pieces)


def test_pieces_of_a_run_never_touch() -> None:
    assert LEAD_IDS + TAIL_IDS < HELD_IDS
    record = kept(A[:1000])
    run = np.concatenate([A[:128], B[:1], A[300:428], C[:1], A[600:728]])
    assert after(record, run) == (2, 384, [run[64:145].tolist(), run[193:274].tolist()])


def test_held_texts_that_meet_leave_nothing_new_between_them() -> None:
    record = kept(A[:1000])
    run = np.concatenate([A[100:300], A[500:700]])
    assert after(record, run) == (0, 400, [])


@pytest.mark.parametrize(("shared", "added"), [(15, 190), (16, 5), (40, 5)])
@pytest.mark.parametrize("swapped", [False, True])
def test_texts_in_two_pieces_are_one_where_a_copy_can_pass_between_them(shared: int, added: int, swapped: bool) -> None:
    pieces = [np.concatenate([C[:20], A[: 85 + shared]]), np.concatenate([A[85:185], C[30:60]])]
    record = Record(empty())
    for piece in reversed(pieces) if swapped else pieces:
        record.store(piece)
    assert novel(np.concatenate([A[:185], B[:5]]), record.index).added == added


@pytest.mark.parametrize("before", [0, 30, 60, 90, 111])
def test_texts_in_many_short_pieces_are_one(before: int) -> None:
    record = Record(empty())
    for start in range(0, 400, 10):
        record.store(A[start : start + 26])
    run = np.concatenate([B[:before], A[:416], C[:50]])
    assert novel(run, record.index).added == before + 50


@pytest.mark.parametrize("edit", [1, 5, 20, 100, 200])
@pytest.mark.parametrize("every", [128, 150, 400])
def test_an_edited_text_adds_its_edits_and_then_nothing(edit: int, every: int) -> None:
    edited = [part for i in range(6) for part in (A[every * i : every * (i + 1)], B[edit * i : edit * (i + 1)])]
    run = np.concatenate([*edited, C[:10]])
    record = kept(A[:3000])
    pieces = keep(record, run)
    assert pieces.added + pieces.held == len(run)
    assert pieces.added <= 6 * edit + 10
    assert after(record, run) == (0, len(run), [])
    assert after(record, run[5:-2]) == (0, len(run) - 7, [])
    longer = np.concatenate([run, C[10:500]])
    assert novel(longer, record.index).added == 490


def test_a_growing_conversation_adds_each_turn_once() -> None:
    record = Record(empty())
    added = 0
    for turn in range(1, 24):
        run = A[: HELD_IDS * turn]
        added += keep(record, run).added
        assert added == len(run)
        assert after(record, run) == (0, len(run), [])
        resumed = run[-100 - LEAD_IDS :]
        assert after(record, resumed) == (0, len(resumed), [])


def test_a_text_behind_a_common_beginning_is_found_however_common_that_is() -> None:
    common = A[:300]
    record = kept(np.concatenate([common, B[:40]]))
    for other in range(100):
        keep(record, np.concatenate([common, text(100 + other, 40)]))
    for own in (B[:40], text(100, 40), text(150, 40), text(199, 40)):
        run = np.concatenate([common, own])
        assert after(record, run) == (0, 340, [])


@pytest.mark.parametrize("strange", [SEPARATOR, -9, VOCABULARY, 2**31 - 1])
def test_what_is_no_id_divides_a_run(strange: int) -> None:
    mark = ids(strange)
    run = np.concatenate([mark, A[:100], mark, mark, B[:16], mark, C[:17], mark])
    record = Record(empty())
    assert after(record, run) == (117, 0, [A[:100].tolist(), C[:17].tolist()])
    keep(record, run)
    assert after(record, run) == (0, 117, [])
    assert after(record, np.concatenate([A[50:100], mark, B[:100]])) == (100, 50, [B[:100].tolist()])


def test_a_run_is_asked_about_rarely() -> None:
    class Counting(RecordIndex):
        asked = 0

        def held(self, run: Ids, at: int, since: int):  # type: ignore[no-untyped-def]
            Counting.asked += 1
            return super().held(run, at, since)

    index = Counting(1 << 24, VOCABULARY)
    novel(text(5, 11_200), index)
    assert Counting.asked == 11_200 // ANCHOR_IDS
    record = Record(index)
    record.store(text(5, 11_200))
    Counting.asked = 0
    novel(text(5, 11_200), index)
    assert Counting.asked == 2


phrases = [text(200 + i, length) for i, length in enumerate((3, 17, 40, 64, 127, 128, 129, 150, 300))]
runs = st.lists(st.integers(0, len(phrases) - 1), min_size=1, max_size=6).map(
    lambda chosen: np.concatenate([phrases[i] for i in chosen])
)


def new_by_plain_search(record: Record, run: Ids) -> NDArray[np.bool_]:
    """Which ids of a run are new: held is whatever stands in a piece, joined where KEY_IDS ids or more are shared."""
    spans = set()
    for piece in (piece for pieces in record.chunks.values() for _, piece in pieces):
        ends = np.zeros(len(piece) + 1, dtype=np.int64)
        for stop, last in enumerate(run.tolist(), start=1):
            # How many ids before each place of the piece equal those before `stop` of the run.
            ends[1:] = np.where(piece == last, ends[:-1] + 1, 0)
            spans.add((stop - int(ends.max()), stop))
    joined: list[tuple[int, int]] = []
    for start, stop in sorted(span for span in spans if span[1] - span[0] >= KEY_IDS):
        if joined and start <= joined[-1][1] - KEY_IDS:
            joined[-1] = (joined[-1][0], max(stop, joined[-1][1]))
        else:
            joined.append((start, stop))
    new = np.ones(len(run), dtype=bool)
    for start, stop in joined:
        if stop - start >= HELD_IDS or (start, stop) == (0, len(run)):
            new[start:stop] = False
    return new


@settings(derandomize=True, deadline=None, max_examples=60)
@given(stored=st.lists(runs, min_size=1, max_size=3), room=st.integers(17, 900), run=runs)
@pytest.mark.slow
def test_what_is_added_is_what_a_plain_search_does_not_find(stored: list[Ids], room: int, run: Ids) -> None:
    record = kept(*stored, room=room)
    new = new_by_plain_search(record, run)
    if len(run) >= LEAST_RUN:
        assert novel(run, record.index).added == int(new.sum())


@settings(derandomize=True, deadline=None, max_examples=80)
@given(stored=st.lists(runs, max_size=4), room=st.integers(17, 1200), run=runs)
@pytest.mark.slow
def test_every_new_id_is_stored_once_can_be_reached_and_is_never_added_again(
    stored: list[Ids], room: int, run: Ids
) -> None:
    record = kept(*stored, room=room)
    new = new_by_plain_search(record, run)
    pieces = keep(record, run)
    if len(run) < LEAST_RUN:
        assert pieces == Pieces((), 0, 0)
        return
    assert (pieces.added, pieces.held) == (int(new.sum()), len(run) - int(new.sum()))
    assert after(record, run) == (0, len(run), [])
    for stop in (np.flatnonzero(new[KEY_IDS:]) + KEY_IDS).tolist():
        places = record.index.find(run[:stop].tolist(), 64)
        assert run[stop] in {record.index.following(place.at, 1)[0] for place in places}
