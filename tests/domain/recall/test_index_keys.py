"""Keys: the same ids always have the same slot, different ones mostly not, and no ids are taken for others."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.recall.keys import slot_of, slots_of, whole
from tensorfold.domain.recall.layout import KEY_IDS, SEPARATOR, Ids
from tests.domain.recall.records import INVISIBLE, SMALLEST, Record, empty, holding, ids, like, text

ENTRIES = SMALLEST // 32


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    values=st.lists(st.sampled_from([-1, *[0, 1, 2] * 12]) | st.integers(0, 2**31 - 1), max_size=60),
    entries=st.integers(1, 2**28),
)
def test_slots_are_the_same_one_by_one_and_all_at_once(values: list[int], entries: int) -> None:
    row = np.array(values, dtype=np.int32)
    windows = [values[i : i + KEY_IDS] for i in range(len(values) - KEY_IDS + 1)]
    assert whole(row).tolist() == [SEPARATOR not in window for window in windows]
    slots = slots_of(row, entries).tolist()
    assert len(slots) == len(windows)
    assert all(0 <= slot < entries for slot in slots)
    for window, slot in zip(windows, slots, strict=True):
        if SEPARATOR not in window:
            assert slot_of(window, entries) == slot


@pytest.mark.parametrize("places", [(), (0,), (15,), (16,), (20,), (39,), (3, 30), (8, 9, 24), tuple(range(40))])
def test_no_key_has_a_separator_in_it(places: tuple[int, ...]) -> None:
    row = np.arange(40, dtype=np.int32)
    row[list(places)] = SEPARATOR
    assert whole(row).tolist() == [not set(places) & set(range(at, at + KEY_IDS)) for at in range(25)]


def spread(rows: Ids, entries: int = 4096) -> float:
    """Share of the slots that are hit, by as many keys as there are slots."""
    return len({slot_of(row.tolist(), entries) for row in rows}) / entries


@pytest.mark.parametrize("place", range(KEY_IDS))
@pytest.mark.parametrize("step", [1, 1024])
def test_keys_that_differ_in_one_id_are_spread_evenly(place: int, step: int) -> None:
    rows = np.tile(text(5, KEY_IDS), (4096, 1))
    rows[:, place] = np.arange(4096) * step
    assert spread(rows) > 0.6  # 0.632 by chance alone


def test_the_order_of_ids_counts() -> None:
    row = text(5, KEY_IDS).tolist()
    swapped = [[*row[:i], row[i + 1], row[i], *row[i + 2 :]] for i in range(KEY_IDS - 1)]
    assert len({slot_of(other, 2**32) for other in [row, *swapped]}) == KEY_IDS


@pytest.mark.parametrize("difference", INVISIBLE)
def test_ids_of_the_same_key_are_not_taken_for_one_another(difference: tuple[int, ...]) -> None:
    held, asked = like(difference, 3)
    index = holding(np.concatenate([held, ids(7, 8, 9)]))
    assert index.find(asked.tolist(), 8) == []
    (place,) = index.find(held.tolist(), 8)
    assert index.following(place.at, 3) == (7, 8, 9)


@pytest.mark.parametrize(
    ("others", "found"), [(0, [7]), (1, [7]), (63, [7]), (64, [7]), (150, [7]), (191, [7]), (192, [])]
)
def test_other_ids_of_a_key_do_not_hide_those_asked_for_until_there_are_very_many(
    others: int, found: list[int]
) -> None:
    held, other = like(INVISIBLE[2], 3)
    record = Record(empty())
    record.store(np.concatenate([held, ids(7)]))
    for _ in range(others):
        record.store(np.concatenate([other, ids(8)]))
    places = record.index.find(held.tolist(), 8)
    assert [record.index.following(place.at, 1)[0] for place in places] == found


@pytest.mark.slow
def test_ids_of_one_slot_of_a_crowded_table_are_told_apart() -> None:
    texts = [text(seed, 40_000, 100_000) for seed in range(3)]
    index = holding(*texts, vocabulary=100_000)
    slots = np.concatenate([slots_of(each, ENTRIES) for each in texts])
    _, shared = np.unique(slots, return_counts=True)
    assert (shared > 1).sum() > 10_000
    for piece in texts:
        for stop in range(KEY_IDS, 40_000, 997):
            (place,) = index.find(piece[:stop][-200:].tolist(), 8)
            assert index.following(place.at, 9) == tuple(piece[stop : stop + 9].tolist())
    assert all(index.find(text(99, 40_000, 100_000)[i : i + 50].tolist(), 8) == [] for i in range(0, 39_000, 97))


def test_every_key_of_a_long_text_is_chained() -> None:
    piece = text(4, 200_000, 100_000)
    index = holding(piece, vocabulary=100_000)
    edges = [0, 1 << 16, 2 << 16, 3 << 16, len(piece) - KEY_IDS - 1]
    for start in {near for edge in edges for near in range(edge - 20, edge + 20)}:
        if 0 <= start < len(piece) - KEY_IDS:
            (place,) = index.find(piece[start : start + KEY_IDS].tolist(), 8)
            assert index.following(place.at, 1) == (int(piece[start + KEY_IDS]),)


def test_places_far_apart_in_a_long_text_are_chained_from_new_to_old() -> None:
    piece = text(4, 200_000, 100_000)
    starts = [100, 60_000, 65_520, 65_530, 65_540, 131_060, 199_000]
    for a, b in pairwise(starts):
        assert b - a >= 10
    common = text(6, 9, 100_000).tolist() * 2
    for start in starts:
        piece[start : start + 9] = common[:9]
    marks = [start + 9 for start in starts]
    index = holding(piece, vocabulary=100_000)
    for mark in marks:
        (place,) = index.find(piece[mark - 20 : mark].tolist(), 1)
        assert index.following(place.at, 1) == (int(piece[mark]),)
    again = (1000, 65_500, 1 << 16, (1 << 16) + 20, 131_000, 1 << 17, 198_000)
    for start in again:
        piece[start : start + 16] = text(8, 16, 100_000)
    index = holding(piece, vocabulary=100_000)
    places = index.find(text(8, 16, 100_000).tolist(), 8)
    follows = [tuple(piece[start + 16 : start + 18].tolist()) for start in reversed(again)]
    assert [index.following(p.at, 2) for p in places] == follows
