"""The index against a plain search over a list of pieces, through any course of events."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.recall.layout import KEY_IDS, Ids
from tests.domain.recall.records import VOCABULARY, Record, empty, text

# Texts are made of a few phrases, so that they repeat one another at every length.
PHRASES = [text(90 + i, length) for i, length in enumerate((7, 11, 16, 20, 30, 70))]
phrases = st.lists(st.integers(0, len(PHRASES) - 1), min_size=1, max_size=6).map(
    lambda chosen: np.concatenate([PHRASES[i] for i in chosen])
)
events = st.one_of(
    st.tuples(st.just("store"), phrases),
    st.tuples(st.just("store"), phrases),
    st.tuples(st.just("store near the end"), st.tuples(st.integers(0, 120), phrases)),
    st.tuples(st.sampled_from(["turn", "drop", "reload", "clear"]), st.none()),
)


def happen(record: Record, kind: str, what: object) -> None:
    if isinstance(what, tuple):
        room, piece = what
        if record.offset < 2 * VOCABULARY:
            record.leave(room)
        record.store(piece)
    elif isinstance(what, np.ndarray):
        record.store(what)
    elif kind == "turn":
        record.turn()
    elif kind == "drop" and len(record.chunks) > 1:
        record.drop()
    elif kind == "reload":
        record.reload()
    elif kind == "clear":
        record.clear()
    while len(record.chunks) > 2:
        record.drop()


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    course=st.lists(events, min_size=1, max_size=8), streams=st.lists(phrases, min_size=1, max_size=4), cut=st.data()
)
@pytest.mark.slow
def test_places_are_those_of_a_plain_search(
    course: list[tuple[str, object]], streams: list[Ids], cut: st.DataObject
) -> None:
    record = Record(empty())
    for kind, what in course:
        happen(record, kind, what)
    held = sum(len(piece) for pieces in record.chunks.values() for _, piece in pieces)
    assert (record.index.ids, record.index.chunks) == (held, len(record.chunks))
    for stream in streams:
        tokens = stream[: cut.draw(st.integers(1, len(stream)))].tolist()
        expected = record.places(tokens)
        found = record.index.find(tokens, 64)
        for most in range(1, 10):
            assert record.index.find(tokens, most) == found[:most]
        assert [p.length for p in found] == [length for length, _ in expected]
        assert [list(record.index.following(p.at, 10**6)) for p in found] == [follows for _, follows in expected]
        for p, (length, follows) in zip(found, expected, strict=True):
            for count in {1, len(follows) - 1, len(follows)} - {0}:
                moved = record.index.advance([p], follows[:count])
                assert moved == ([(length + count, p.at + count)] if count < len(follows) else [])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), kinds=st.integers(1, 4), breaks=st.floats(0.0, 0.2))
@pytest.mark.slow
def test_a_chunk_of_garbage_is_searched_like_any_other(seed: int, kinds: int, breaks: float) -> None:
    rng = np.random.default_rng(seed)
    read = rng.integers(0, kinds, 60, dtype=np.int32)
    torn = rng.random(60) < breaks
    read[torn] = rng.integers(-(2**31), 2**31 - 1, int(torn.sum()), dtype=np.int32)
    record = Record(empty())
    record.index.load(1, read)
    whole = np.where((read < 0) | (read >= VOCABULARY), -1, read)
    starts = [0, *(np.flatnonzero(whole < 0) + 1).tolist()]
    record.chunks[1] = [
        (start, piece[piece >= 0]) for start, piece in zip(starts, np.split(whole, starts[1:]), strict=True)
    ]
    for stop in range(KEY_IDS, 60):
        tokens = read[:stop].tolist()
        found = record.index.find(tokens, 64)
        follows = [(p.length, list(record.index.following(p.at, 100))) for p in found]
        assert follows == record.places([t if 0 <= t < VOCABULARY else -7 for t in tokens])


def test_bytes_of_any_kind_are_a_record() -> None:
    rng = np.random.default_rng(7)
    record = Record(empty())
    for sequence in range(1, 4):
        read = rng.integers(-(2**31), 2**31 - 1, 200_000, dtype=np.int32)
        read[5000:6000] = 0
        record.index.load(sequence, read)
    inside = int(((read >= 0) & (read < VOCABULARY)).sum())
    assert inside >= 1000 and abs(record.index.ids - 2 * inside) < 500
    found = record.index.find([0] * 3000, 8)
    assert [p.length for p in found] == list(range(999, 991, -1))
    assert [set(record.index.following(p.at, 5000)) for p in found] == [{0}] * 8
