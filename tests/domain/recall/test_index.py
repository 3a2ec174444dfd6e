"""What a stream finds in the record: which places count, how they are ranked, followed and lost."""

from __future__ import annotations

import gc
import tracemalloc
import weakref

import numpy as np
import pytest

from tensorfold.domain.recall import lengths as matching
from tensorfold.domain.recall.chunks import Chunk
from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.layout import CHUNK_BYTES, CHUNK_IDS, MOST_CHUNKS, SEPARATOR, Ids, Part
from tensorfold.domain.recall.lengths import REACH
from tensorfold.domain.recall.places import Place
from tests.domain.recall.records import VOCABULARY, Record, empty, holding, ids, text

A, B, C = text(1, 3000), text(2, 3000), text(3, 3000)
TABLE = CHUNK_BYTES * 2 // 8
CHUNK_MEMORY = 8 << 20


def lengths_found(index: RecordIndex, tokens: list[int], most: int = 64) -> list[int]:
    return [place.length for place in index.find(tokens, most)]


def followed(index: RecordIndex, tokens: list[int], count: int = 4, most: int = 64) -> list[tuple[int, ...]]:
    return [index.following(place.at, count) for place in index.find(tokens, most)]


@pytest.mark.parametrize(("shared", "found"), [(15, []), (16, [16]), (17, [17]), (31, [31]), (64, [64])])
def test_sixteen_equal_ids_make_a_match_and_fifteen_do_not(shared: int, found: list[int]) -> None:
    index = holding(A[:200])
    stream = [*B[:50].tolist(), (A[100 - shared - 1] + 1) % VOCABULARY, *A[100 - shared : 100].tolist()]
    assert lengths_found(index, stream) == found
    assert followed(index, stream, 5) == [tuple(A[100:105].tolist())] * len(found)


@pytest.mark.parametrize("length", [16, 17, 127, 128, 129, 1023, 1024])
@pytest.mark.parametrize("others", [0, 3])
def test_a_match_is_measured_to_the_id(length: int, others: int) -> None:
    shorter = [np.concatenate([B[i * 50 : i * 50 + 20], A[1980 - i : 2001]]) for i in range(others)]
    index = holding(A[:2100], *shorter)
    stream = [*C[:30].tolist(), *A[2000 - length : 2000].tolist()]
    assert lengths_found(index, stream) == sorted([length, *(min(20 + i, length) for i in range(others))], reverse=True)


@pytest.mark.parametrize("length", [REACH - 1, REACH, REACH + 1, 2000])
def test_longer_matches_count_as_the_longest_that_is_measured(length: int) -> None:
    assert lengths_found(holding(A[:2100]), A[2000 - length : 2000].tolist()) == [min(length, REACH)]


@pytest.mark.parametrize("stop", [16, 17, 100, 127, 128, 129, 500, 1023, 1024, 1025])
def test_a_match_ends_at_the_start_of_its_chunk(stop: int) -> None:
    record = Record(empty())
    record.leave(1500)
    record.store(A[:1500])
    record.turn()
    record.store(A[1500:])
    stream = A[: 1500 + stop].tolist()
    assert lengths_found(record.index, stream) == [min(stop, REACH)]
    assert followed(record.index, stream) == [tuple(A[1500 + stop : 1504 + stop].tolist())]


def test_a_place_near_the_start_of_a_chunk_and_one_far_from_it_are_measured_together() -> None:
    record = Record(empty())
    record.store(A[1900:2100])
    record.store(A[:2100])
    assert lengths_found(record.index, A[:2000].tolist()) == [REACH, 100]


def test_a_match_crosses_no_separator_whatever_the_stream_has_there() -> None:
    index = holding(A[:100], B[:100])
    joined = [*A[:100].tolist(), *B[:40].tolist()]
    parted = [*A[:100].tolist(), SEPARATOR, *B[:40].tolist()]
    assert lengths_found(index, joined) == lengths_found(index, parted) == [40]


def test_no_key_spans_a_separator() -> None:
    index = holding(A[:100], B[:100])
    for parted in ([], [SEPARATOR]):
        for share in range(1, 16):
            assert index.find([*A[:100].tolist(), *parted, *B[:share].tolist()], 8) == []


def test_a_text_shorter_than_a_key_is_never_found_and_one_as_long_leads_nowhere() -> None:
    index = holding(A[:15], B[:16], C[:17])
    assert index.find(A[:15].tolist(), 8) == index.find(B[:16].tolist(), 8) == []
    assert followed(index, C[:16].tolist()) == [(int(C[16]),)]


@pytest.mark.parametrize("count", range(16))
def test_too_few_tokens_find_nothing(count: int) -> None:
    assert holding(A[:200]).find(A[:count].tolist(), 8) == []


def test_of_equal_matches_the_newest_comes_first() -> None:
    common = A[:40]
    pieces = [np.concatenate([text(i, 9), common, text(50 + i, 5)]) for i in range(10, 20)]
    index = holding(*pieces)
    assert followed(index, common.tolist(), 5) == [tuple(piece[-5:].tolist()) for piece in reversed(pieces)]


def test_a_longer_match_comes_before_newer_ones() -> None:
    pieces = [np.concatenate([A[20 * i : 200], B[i : i + 3]]) for i in (3, 0, 6, 1)]
    index = holding(*pieces)
    stream = [*C[:100].tolist(), *A[:200].tolist()]
    assert lengths_found(index, stream) == [200, 180, 140, 80]
    assert followed(index, stream, 3) == [tuple(B[i : i + 3].tolist()) for i in (0, 1, 3, 6)]


@pytest.mark.parametrize("longest", [60, 300, 2000])
@pytest.mark.parametrize("seed", range(4))
def test_the_best_of_many_places_come_however_few_are_asked_for(longest: int, seed: int) -> None:
    shared = np.random.default_rng(seed).integers(16, longest + 1, 60)
    pieces = [
        np.concatenate([B[i : i + 5], A[2500 - length : 2500], ids(i)]) for i, length in enumerate(shared.tolist())
    ]
    index = holding(*pieces)
    lengths = [min(length + int(A[2499 - length] == B[i + 4]), REACH) for i, length in enumerate(shared.tolist())]
    ranked = sorted(range(60), key=lambda i: (-lengths[i], -i))
    for most in (1, 2, 7, 8, 15, 16, 17, 40, 60, 61):
        found = index.find(A[:2500].tolist(), most)
        assert [place.length for place in found] == [lengths[i] for i in ranked[:most]]
        assert [index.following(place.at, 5) for place in found] == [(i,) for i in ranked[:most]]


@pytest.mark.parametrize(("most", "count"), [(0, 0), (1, 1), (2, 2), (3, 3), (4, 3)])
def test_no_more_places_come_than_were_asked_for(most: int, count: int) -> None:
    index = holding(A[:100], A[:100], A[:100])
    assert len(index.find(A[:50].tolist(), most)) == count


def test_a_place_that_nothing_follows_is_left_out_before_the_ranking() -> None:
    ends = [np.concatenate([B[3 * i : 3 * i + 3], A[50:100]]) for i in range(80)]
    index = holding(A[60:120], A[:100], *ends)
    assert lengths_found(index, A[:100].tolist(), 1) == [40]
    assert followed(index, A[:100].tolist()) == [tuple(A[100:104].tolist())]


def test_the_end_of_what_is_published_is_followed_by_nothing() -> None:
    index = empty()
    index.load(1, A[:100])
    assert index.find(A[:100].tolist(), 8) == []
    assert followed(index, A[:99].tolist()) == [(int(A[99]),)]


def test_the_end_of_a_chunk_is_followed_by_nothing() -> None:
    record = Record(empty())
    record.leave(50)
    record.store(A[:50])
    assert record.offset == CHUNK_IDS + 1
    assert record.index.find(A[:50].tolist(), 8) == []
    assert followed(record.index, A[:49].tolist()) == [(int(A[49]),)]


@pytest.mark.parametrize("strange", [-1, -5, VOCABULARY, VOCABULARY + 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**70])
def test_what_is_no_id_ends_a_match_of_the_stream_and_is_never_found(strange: int) -> None:
    index = holding(A[:400])
    stream = [*A[:200].tolist(), strange, *A[201:300].tolist()]
    assert lengths_found(index, stream) == [99]
    assert lengths_found(index, [*stream[:-150], strange, *stream[-149:]]) == [99]
    assert index.find([*A[:300].tolist(), strange], 8) == []
    assert index.find([*A[:300].tolist(), strange, *A[300:315].tolist()], 8) == []


@pytest.mark.parametrize("kind", [list, tuple])
def test_only_the_end_of_a_long_stream_is_read(kind: type) -> None:
    class Watched(kind):  # type: ignore[misc]
        asked: int = 0

        def __getitem__(self, key: object) -> object:
            got = super().__getitem__(key)
            Watched.asked += len(got) if isinstance(key, slice) else 1
            return got

        def __iter__(self) -> object:
            raise AssertionError("the stream was read from its start")

    stream = Watched([*B.tolist(), *A[:2000].tolist()])
    assert [place.length for place in holding(A[:2100]).find(stream, 8)] == [REACH]
    assert REACH < Watched.asked < 2 * REACH


def test_places_go_on_with_the_stream_in_the_order_given() -> None:
    index = holding(A[:100], np.concatenate([B[:10], A[20:60], B[60:90]]), A[:100])
    places = index.find(A[:50].tolist(), 8)
    assert [place.length for place in places] == [50, 50, 30]
    assert index.advance(places, A[50:60].tolist()) == [Place(place.length + 10, place.at + 10) for place in places]
    assert index.advance(places[::-1], [int(A[50])]) == [Place(p.length + 1, p.at + 1) for p in places[::-1]]
    newest, oldest, _ = places
    assert index.advance(places, A[50:61].tolist()) == [Place(61, newest.at + 11), Place(61, oldest.at + 11)]
    assert index.advance(places, [*A[50:55].tolist(), int(A[55] + 1) % VOCABULARY]) == []
    assert index.advance(places, []) == places
    assert index.advance([], A[50:60].tolist()) == []


def test_a_place_with_nothing_left_to_follow_is_dropped() -> None:
    index = holding(A[:100], B[:100])
    places = index.find(A[:50].tolist(), 8)
    assert index.advance(places, A[50:99].tolist()) == [Place(99, places[0].at + 49)]
    assert index.advance(places, A[50:100].tolist()) == []
    assert index.advance(places, [*A[50:100].tolist(), SEPARATOR]) == []
    assert index.advance(places, [*A[50:100].tolist(), SEPARATOR, *B[:20].tolist()]) == []


def test_a_place_goes_no_further_than_what_is_published_or_its_chunk() -> None:
    record = Record(empty())
    record.index.load(1, A[:100])
    (place,) = record.index.find(A[:50].tolist(), 8)
    assert record.index.following(place.at, 1000) == tuple(A[50:100].tolist())
    assert record.index.advance([place], A[50:99].tolist()) == [Place(99, place.at + 49)]
    assert record.index.advance([place], A[50:100].tolist()) == []
    record.leave(100)
    record.store(B[:100])
    record.turn()
    record.store(C[:100])
    (place,) = record.index.find(B[:50].tolist(), 8)
    assert record.index.following(place.at, 1000) == tuple(B[50:100].tolist())
    assert record.index.advance([place], B[50:99].tolist()) == [Place(99, place.at + 49)]
    assert record.index.advance([place], B[50:100].tolist()) == []
    assert record.index.advance([place], [*B[50:100].tolist(), *C[:10].tolist()]) == []


@pytest.mark.parametrize("strange", [2**31, -(2**31) - 1, 2**80])
def test_tokens_that_are_no_ids_move_no_place(strange: int) -> None:
    index = holding(A[:100])
    assert index.advance(index.find(A[:50].tolist(), 8), [strange]) == []


@pytest.mark.parametrize(("count", "given"), [(0, 0), (1, 1), (49, 49), (50, 50), (51, 50), (5000, 50)])
def test_what_follows_ends_with_the_piece(count: int, given: int) -> None:
    index = holding(A[:100], B[:100])
    (place,) = index.find(A[:50].tolist(), 8)
    assert index.following(place.at, count) == tuple(A[50 : 50 + given].tolist())


@pytest.mark.parametrize("at", [0, -1, 5, 1 << 20, 1 << 40, (1 << 20) + 150, (1 << 20) + CHUNK_IDS - 1])
def test_a_place_that_never_was_leads_nowhere(at: int) -> None:
    index = holding(A[:100])
    if at != 1 << 20:  # that is where the first piece begins
        assert index.following(at, 5) == ()
        assert index.advance([Place(16, at)], [int(A[0])]) == []


def test_a_dropped_chunk_is_found_no_more_and_its_places_lead_nowhere() -> None:
    record = Record(empty())
    record.store(A[:100])
    record.turn()
    record.store(np.concatenate([B[:5], A[20:100], C[:5]]))
    places = record.index.find(A[:50].tolist(), 8)
    assert [place.length for place in places] == [50, 30]
    record.index.drop([1])
    assert record.index.era == 0
    assert record.index.find(A[:50].tolist(), 8) == places[1:]
    assert record.index.advance(places, [int(A[50])]) == [Place(31, places[1].at + 1)]
    assert record.index.following(places[0].at, 5) == ()
    record.index.drop([1, 7])
    assert (record.index.ids, record.index.chunks, record.index.memory_bytes) == (90, 1, TABLE + CHUNK_MEMORY)


def test_the_newest_chunk_may_be_dropped_and_begun_again() -> None:
    index = holding(A[:100])
    index.drop([1])
    assert (index.ids, index.chunks) == (0, 0)
    index.add(Part(1, 100, B[:60]))
    assert followed(index, B[:50].tolist()) == [tuple(B[50:54].tolist())]
    assert index.ids == 60


@pytest.mark.slow
def test_memory_of_a_dropped_chunk_is_given_back() -> None:
    index = holding(A[:100])
    (chunk,) = index._chains.live.values()
    gone: list[weakref.ref[object]] = [weakref.ref(chunk.ids), weakref.ref(chunk.links)]
    del chunk
    index.drop([1])
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


@pytest.mark.slow
def test_a_chunk_takes_eight_bytes_an_id_and_nothing_else_stays_of_what_was_loaded() -> None:
    index = empty()
    read = text(5, CHUNK_IDS)
    tracemalloc.start()
    try:
        index.load(1, read)
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        index.load(2, read)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert CHUNK_MEMORY <= taken < CHUNK_MEMORY + 50_000
    assert most < 2 * CHUNK_MEMORY + CHUNK_BYTES


def test_emptying_forgets_everything_and_changes_the_era() -> None:
    index = holding(A[:100], B[:100])
    places = index.find(A[:50].tolist(), 8)
    index.clear()
    assert index.era == 1
    assert (index.ids, index.chunks, index.memory_bytes) == (0, 0, TABLE)
    assert index.find(A[:50].tolist(), 8) == index.advance(places, [int(A[50])]) == []
    index.add(Part(1, 0, A[:100]))
    assert index.following(places[0].at, 5) == ()
    assert index.advance(places, [int(A[50])]) == []
    assert lengths_found(index, A[:50].tolist()) == [50]
    index.clear()
    assert index.era == 2


def test_chunks_are_never_more_than_the_budget_allows() -> None:
    index = RecordIndex(3 * CHUNK_BYTES + 100, VOCABULARY)
    for sequence in range(1, 9):
        index.add(Part(sequence, 0, text(sequence, 100)))
        assert index.chunks == min(sequence, 3)
    assert [bool(index.find(text(s, 100)[:50].tolist(), 1)) for s in range(1, 9)] == [False] * 5 + [True] * 3
    assert index.ids == 300


@pytest.mark.parametrize("budget", [0, 2 * CHUNK_BYTES - 1, MOST_CHUNKS * CHUNK_BYTES + 1])
def test_a_budget_outside_what_chunks_allow_is_refused(budget: int) -> None:
    with pytest.raises(ValueError, match="outside 2 to 2048 chunks"):
        RecordIndex(budget, VOCABULARY)


@pytest.mark.parametrize("budget", [2 * CHUNK_BYTES, 3 * CHUNK_BYTES, 16 * CHUNK_BYTES, 100_000_000])
def test_memory_is_an_eighth_of_the_budget_and_eight_bytes_an_id_of_each_chunk(budget: int) -> None:
    index = RecordIndex(budget, VOCABULARY)
    assert index.memory_bytes == budget // 8
    index.add(Part(1, 0, A[:20]))
    index.add(Part(1, 21, A[:20]))
    assert (index.ids, index.chunks, index.memory_bytes) == (40, 1, budget // 8 + 8 * CHUNK_IDS)
    index.load(2, np.full(30, SEPARATOR, dtype=np.int32))
    assert (index.ids, index.chunks, index.memory_bytes) == (40, 2, budget // 8 + 16 * CHUNK_IDS)


@pytest.mark.slow
def test_the_largest_record_has_an_index() -> None:
    index = RecordIndex(MOST_CHUNKS * CHUNK_BYTES, VOCABULARY)
    index.add(Part(1, 0, A[:100]))
    assert lengths_found(index, A[:50].tolist()) == [50]


def test_a_chunk_without_ids_takes_no_memory() -> None:
    index = empty()
    index.load(1, ids())
    assert index.chunks == 0
    index.add(Part(1, 0, A[:100]))
    assert lengths_found(index, A[:50].tolist()) == [50]


def test_what_a_chunk_has_too_much_is_not_read() -> None:
    index = empty()
    read = np.full(CHUNK_IDS + 100, SEPARATOR, dtype=np.int32)
    read[-200:] = A[:200]
    index.load(1, read)
    assert index.ids == 100
    assert followed(index, A[:90].tolist(), 50) == [tuple(A[90:100].tolist())]


def test_what_is_no_id_of_the_vocabulary_is_read_as_a_separator() -> None:
    index = empty()
    for sequence, strange in enumerate([SEPARATOR, -(2**31), VOCABULARY, 2**31 - 1], start=1):
        index.load(sequence, np.concatenate([A[:50], ids(strange), A[51:100]]))
        (place,) = index.find(A[:40].tolist(), 1)
        assert index.following(place.at, 50) == tuple(A[40:50].tolist())
        assert lengths_found(index, A[:80].tolist(), 1) == [29]
        assert index.ids == 99 * min(sequence, 2)


def test_an_appended_part_is_no_more_trusted_than_what_is_read() -> None:
    index = empty()
    index.add(Part(1, 0, np.concatenate([A[:50], ids(VOCABULARY), A[51:100]])))
    assert followed(index, A[:40].tolist(), 50) == [tuple(A[40:50].tolist())]
    assert index.ids == 99


def test_a_part_follows_what_was_read() -> None:
    index = empty()
    index.load(1, A[:100])
    index.add(Part(1, 103, B[:100]))
    assert followed(index, A[:90].tolist(), 50) == [tuple(A[90:100].tolist())]
    assert lengths_found(index, [*A[:100].tolist(), *B[:50].tolist()]) == [50]
    assert index.find([*A[:100].tolist(), *B[:10].tolist()], 1) == []
    assert index.ids == 200


@pytest.mark.parametrize(
    ("sequence", "offset", "length"),
    [(5, 0, 20), (5, 100, 20), (5, 99, 20), (5, CHUNK_IDS - 19, 20), (5, -1, 20), (4, 0, 20), (6, CHUNK_IDS - 19, 20)],
)
def test_a_part_without_a_place_is_refused_and_changes_nothing(sequence: int, offset: int, length: int) -> None:
    index = empty()
    index.load(5, A[:100])
    with pytest.raises(ValueError):
        index.add(Part(sequence, offset, B[:length]))
    assert (index.ids, index.chunks) == (100, 1)
    index.add(Part(5, 101, B[:20]))
    assert index.ids == 120


def test_a_part_that_touches_a_piece_of_one_id_is_refused() -> None:
    index = empty()
    index.load(1, A[:1])
    with pytest.raises(ValueError, match="20 ids at 1 do not fit a chunk of which 1 are taken"):
        index.add(Part(1, 1, B[:20]))
    index.load(2, ids(5, SEPARATOR))
    index.add(Part(2, 2, B[:20]))
    assert index.ids == 22


def test_a_part_that_fills_its_chunk_to_the_end_is_taken() -> None:
    index = empty()
    index.add(Part(1, CHUNK_IDS - 20, B[:20]))
    assert index.ids == 20


def test_a_part_that_could_not_be_added_can_be_added_later(monkeypatch: pytest.MonkeyPatch) -> None:
    index = empty()
    with monkeypatch.context() as patched:
        patched.setattr("tensorfold.domain.recall.chains.Chains.insert", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            index.add(Part(1, 0, A[:100]))
    assert index.find(A[:50].tolist(), 8) == []
    # What lies in memory that nothing was published in may be anything.
    index._chains.live[1].ids[-1] = 7
    index.add(Part(1, 0, A[:100]))
    assert lengths_found(index, A[:50].tolist()) == [50]


def test_an_id_beyond_every_vocabulary_hides_no_other() -> None:
    zeros = np.concatenate([A[:40], ids(0, 0, 0), A[43:80]])
    stream = [2**40, *zeros[1:60].tolist()]
    assert lengths_found(holding(zeros), stream) == [59]


def test_of_a_text_that_is_everywhere_few_places_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(tail: Ids, places: list[tuple[Chunk, int]]) -> tuple[list[int], list[int]]:
        asked.append(len(places))
        return compare(tail, places)

    compare = matching._compared
    pieces = [np.concatenate([ids(i), A[40:101]]) for i in range(60)]
    index = holding(*pieces)
    monkeypatch.setattr(matching, "_compared", counted)
    assert lengths_found(index, A[:100].tolist(), 8) == [60] * 8
    assert asked == [16]
    asked.clear()
    assert lengths_found(index, A[:100].tolist(), 20) == [60] * 20
    assert asked == [16, 44]


def test_of_a_text_that_is_everywhere_the_newest_places_are_looked_at() -> None:
    for others, found in ((63, 100), (64, 20)):
        short = [np.concatenate([B[3 * i : 3 * i + 3], A[80:101]]) for i in range(others)]
        index = holding(A[:110], *short)
        assert lengths_found(index, A[:100].tolist(), 1) == [found]
        # Older ones too while there are too few.
        assert lengths_found(index, A[:100].tolist(), 65)[0] == 100


def test_chunks_are_read_in_the_order_of_their_numbers() -> None:
    index = empty()
    index.load(5, A[:100])
    for sequence in (4, 5):
        with pytest.raises(ValueError, match=f"chunk {sequence} comes after chunk 5"):
            index.load(sequence, B[:100])
    index.load(9, B[:100])
    assert index.chunks == 2
