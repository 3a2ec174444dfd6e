"""What the index says it holds of a run, which decides what is added again."""

from __future__ import annotations

import numpy as np
import pytest

from tensorfold.domain.recall.index import Held
from tensorfold.domain.recall.layout import CHUNK_IDS, KEY_IDS, Ids
from tensorfold.domain.recall.lengths import common_start
from tests.domain.recall.records import INVISIBLE, Record, empty, holding, ids, like, text

A, B, C = text(1, 1000), text(2, 1000), text(3, 1000)


@pytest.mark.parametrize("at", [100, 101, 150, 284])
def test_what_is_held_reaches_both_ways_from_the_ids_asked_about(at: int) -> None:
    index = holding(B[:70], np.concatenate([ids(5), A[100:300], ids(5)]), C[:70])
    run = np.concatenate([(A[:100] + 1) % 5 + 6, A[100:300], (A[300:] + 1) % 5 + 6])
    assert index.held(run, at, 0) == Held(100, 300, False)
    assert index.held(run, at, min(at, 120)) == Held(min(at, 120), 300, False)


@pytest.mark.parametrize("at", [0, 84, 85, 99, 300])
def test_ids_that_are_not_all_held_are_not_held_at_all(at: int) -> None:
    index = holding(A[100:300])
    assert index.held(A, at, 0) == Held(at, at, False)


def test_long_texts_are_held_to_the_id() -> None:
    for length in (63, 64, 65, 66, 128, 319, 320, 321, 700):
        run = np.concatenate([B[:300], A[:length], C[:300]])
        held = np.concatenate([ids(1), A[:length], ids(1)])
        run[299] = run[300 + length] = 2
        for at in {300, 300 + length // 2 - 8, 300 + length - KEY_IDS}:
            assert holding(held).held(run, at, 0) == Held(300, 300 + length, False)


def test_what_is_held_ends_with_the_run_the_piece_and_the_chunk() -> None:
    record = Record(empty())
    record.leave(100)
    record.store(A[:100])
    assert record.offset == CHUNK_IDS + 1
    assert record.index.held(A[:500], 50, 0) == Held(0, 100, False)
    assert record.index.held(A[:90], 50, 0) == Held(0, 90, False)
    assert record.index.held(A[10:500], 90 - KEY_IDS, 0) == Held(0, 90, False)


def test_what_is_held_ends_with_what_is_published() -> None:
    index = empty()
    index.load(1, A[:100])
    index._chains.live[1].ids[100:110] = A[100:110]
    assert index.held(A, 50, 0) == Held(0, 100, False)


def test_places_that_hold_a_part_each_are_taken_together() -> None:
    index = holding(np.concatenate([A[50:110], B[:5]]), np.concatenate([B[10:15], A[90:150]]), B[:50])
    assert index.held(A, 92, 0) == Held(50, 150, False)


@pytest.mark.parametrize(("newer", "held"), [(0, 300), (63, 300), (64, 130), (65, 130)])
def test_of_a_text_that_is_everywhere_the_newest_places_are_compared(newer: int, held: int) -> None:
    short = [np.concatenate([A[100:130], ids(i)]) for i in range(newer)]
    index = holding(A[100:300], *short)
    assert index.held(A, 110, 100) == Held(100, held, newer >= 63)


@pytest.mark.parametrize(
    ("others", "held", "cut"), [(0, 200, False), (190, 200, False), (191, 200, True), (192, 0, True)]
)
def test_other_ids_of_a_key_are_not_held_and_hide_what_is_when_there_are_very_many(
    others: int, held: int, cut: bool
) -> None:
    wanted, other = like(INVISIBLE[2], 3)
    run = np.concatenate([wanted, A[:184]])
    index = holding(run, *[np.concatenate([other, A[:30]])] * others)
    assert index.held(run, 0, 0) == Held(0, held, cut)


def test_places_that_hold_no_more_than_is_known_are_not_compared_at_length(monkeypatch: pytest.MonkeyPatch) -> None:
    index = holding(*[np.concatenate([ids(i), A[100:130], ids(i)]) for i in range(60)])
    compared: list[int] = []

    def counted(left: Ids, right: Ids) -> int:
        compared.append(len(left))
        return common_start(left, right)

    monkeypatch.setattr("tensorfold.domain.recall.index.common_start", counted)
    assert index.held(A, 110, 0) == Held(100, 130, False)
    assert len(compared) == 2
