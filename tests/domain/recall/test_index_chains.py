"""Chains while the record changes under a walk: each step of a change is put between two steps of a reader."""

from __future__ import annotations

from array import array
from collections.abc import Callable

import numpy as np
import pytest

from tensorfold.domain.recall.chains import Chains
from tensorfold.domain.recall.chunks import Chunk
from tensorfold.domain.recall.layout import CHUNK_BYTES, KEY_IDS, Ids, Part
from tests.domain.recall.records import VOCABULARY, empty, text

ENTRIES = CHUNK_BYTES // 16
A, B = text(1, 200), text(2, 200)
KEY = array("i", A[50 : 50 + KEY_IDS].tolist())


class Watched(dict[int, Chunk]):
    """Chunks by number that let something happen at the `nth` look of a reader."""

    def __init__(self, nth: int, event: Callable[[], None]) -> None:
        super().__init__()
        self.left, self.event = nth, event

    def get(self, number: int, default: object = None) -> Chunk | None:  # type: ignore[override]
        self.left -= 1
        if self.left == 0:
            self.event()
        return super().get(number)


def filled(chains: Chains, number: int, ids: Ids = A) -> Chunk:
    chunk = Chunk(number, number)
    chains.admit(chunk)
    chunk.write(ids, 0, VOCABULARY)
    chains.insert(chunk, 0, len(ids))
    chunk.publish(len(ids))
    return chunk


def places(chains: Chains, steps: int = 192, after: int = 1) -> list[tuple[Chunk, int]]:
    return [place for batch in chains.walk(KEY, steps, after) for place in batch]


def numbers_found(chains: Chains, steps: int = 192, after: int = 1) -> list[int]:
    return [chunk.number for chunk, _ in places(chains, steps, after)]


@pytest.mark.parametrize("live", [1, 2, 3])
def test_chains_go_on_when_positions_have_to_be_made_anew(live: int) -> None:
    chains = Chains(ENTRIES, numbers=4)
    for number in range(1, 30):
        while len(chains.live) >= live:
            del chains.live[min(chains.live)]
        filled(chains, number)
        assert numbers_found(chains) == list(range(number, max(number - live, 0), -1))
        for chunk, stop in places(chains):
            assert chunk.ids[stop] == A[50 + KEY_IDS]
            assert stop == 50 + KEY_IDS


def test_positions_are_made_anew_only_when_they_have_to_be() -> None:
    chains = Chains(ENTRIES, numbers=6)
    filled(chains, 1)
    above = []
    for number in range(2, 14):
        while len(chains.live) >= 2:
            del chains.live[min(chains.live)]
        link = filled(chains, number).links[50 + KEY_IDS - 1]
        # A link tells how far the chunk before stands above the base.
        above.append(int(link) >> 20)
    assert above == [1, 2, 3, 4] * 3


@pytest.mark.parametrize("held", [1, 63, 64, 65, 128, 129, 200])
@pytest.mark.parametrize("steps", [0, 1, 63, 64, 65, 128, 129, 192])
def test_a_walk_takes_as_many_steps_as_it_is_told_some_at_a_time(held: int, steps: int) -> None:
    chains = Chains(ENTRIES)
    chunk = filled(chains, 1, np.tile(A[: 70 + KEY_IDS], held))
    batches = list(chains.walk(KEY, steps, 1))
    assert all(len(batch) <= 64 for batch in batches)
    every = [(chunk, 50 + KEY_IDS + (70 + KEY_IDS) * number) for number in reversed(range(held))]
    assert [place for batch in batches for place in batch] == every[:steps]


def test_a_walk_that_came_to_the_end_of_its_chain_says_no_more() -> None:
    chains = Chains(ENTRIES)
    assert [len(batch) for batch in chains.walk(KEY, 192, 1)] == [0]
    filled(chains, 1)
    assert [len(batch) for batch in chains.walk(KEY, 192, 1)] == [1]


def test_a_text_of_one_key_has_a_place() -> None:
    chains = Chains(ENTRIES)
    filled(chains, 1, A[50 : 50 + KEY_IDS])
    assert [stop for _, stop in places(chains, after=0)] == [KEY_IDS]


def test_no_key_reaches_beyond_what_was_inserted() -> None:
    chains = Chains(ENTRIES)
    for cut in range(51, 50 + KEY_IDS):
        chunk = Chunk(cut, cut)
        chains.admit(chunk)
        chunk.write(A, 0, VOCABULARY)
        chains.insert(chunk, 0, cut)
        chains.insert(chunk, cut, len(A))
        chunk.publish(len(A))
    assert numbers_found(chains) == []


def test_chunks_are_told_apart_up_to_the_last_number() -> None:
    chains = Chains(ENTRIES)
    for number in (1, 2047, 2048, 4095):
        filled(chains, number)
    assert numbers_found(chains) == [4095, 2048, 2047, 1]
    del chains.live[1]
    filled(chains, 4096)
    assert numbers_found(chains) == [4096, 4095, 2048, 2047]


def test_positions_of_before_mean_nothing_when_they_are_made_anew() -> None:
    chains = Chains(ENTRIES, numbers=4)
    filled(chains, 1)
    filled(chains, 2, B)
    filled(chains, 3, B)
    del chains.live[1]
    filled(chains, 4, B)
    filled(chains, 5, B)
    assert numbers_found(chains) == []
    assert np.count_nonzero(chains._heads) <= len(B)


def test_the_first_key_of_a_chunk_is_there_when_positions_were_made_anew() -> None:
    chains = Chains(ENTRIES, numbers=4)
    for number in range(1, 5):
        while len(chains.live) >= 2:
            del chains.live[min(chains.live)]
        filled(chains, number, A[50:])
    assert numbers_found(chains) == [4, 3]


def test_nothing_of_an_emptied_record_stays_in_the_table() -> None:
    chains = Chains(ENTRIES)
    filled(chains, 1)
    chains.clear()
    assert not chains._heads.any()


def test_a_walk_asks_for_as_much_after_a_place_as_it_is_told() -> None:
    chains = Chains(ENTRIES)
    filled(chains, 1, A[: 50 + KEY_IDS])
    filled(chains, 2, A[: 51 + KEY_IDS])
    assert [numbers_found(chains, after=after) for after in (0, 1)] == [[2, 1], [2]]


def test_a_position_that_is_not_published_yet_is_passed_over() -> None:
    chains = Chains(ENTRIES)
    filled(chains, 1)
    chunk = Chunk(2, 2)
    chains.admit(chunk)
    chunk.write(A, 0, VOCABULARY)
    chains.insert(chunk, 0, len(A))
    assert numbers_found(chains) == [1]
    chunk.publish(50 + KEY_IDS)
    assert numbers_found(chains) == [1]
    chunk.publish(51 + KEY_IDS)
    assert numbers_found(chains) == [2, 1]


@pytest.mark.parametrize(("nth", "found"), [(1, []), (2, [3]), (3, [3, 2]), (4, [3, 2, 1])])
def test_chunks_that_go_during_a_walk_end_it(nth: int, found: list[int]) -> None:
    chains = Chains(ENTRIES)
    chains.live = Watched(nth, lambda: chains.live.clear())
    for number in (1, 2, 3):
        filled(chains, number)
    assert numbers_found(chains) == found


def test_a_walk_during_which_positions_are_made_anew_finds_nothing_rather_than_something_wrong() -> None:
    for nth in (1, 2, 3):
        chains = Chains(ENTRIES, numbers=4)

        def renumber(chains: Chains = chains) -> None:
            del chains.live[1]
            filled(chains, 4)

        chains.live = Watched(nth, renumber)
        for number in (1, 2, 3):
            filled(chains, number)
        assert numbers_found(chains) == []
        assert numbers_found(chains) == [4, 3, 2]


def test_a_chain_bent_into_a_circle_is_left() -> None:
    chains = Chains(ENTRIES)
    first, second = filled(chains, 1), filled(chains, 2)
    first.links[50 + KEY_IDS - 1] = (2 << 20) + 50 + KEY_IDS - 1
    assert numbers_found(chains) == [2, 1]
    second.links[50 + KEY_IDS - 1] = (2 << 20) + 50 + KEY_IDS - 1
    assert numbers_found(chains) == [2]


def test_places_found_before_positions_were_made_anew_stay_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorfold.domain.recall.index.Chains", lambda entries: Chains(entries, numbers=4))
    index = empty()
    index.add(Part(1, 0, A))
    found: dict[int, int] = {}
    for sequence in range(2, 20):
        index.add(Part(sequence, 0, np.concatenate([B[:sequence], A])))
        places = index.find(A[:50].tolist(), 8)
        assert [index.following(p.at, 3) for p in places] == [tuple(A[50:53].tolist())] * 2
        for place in places:
            found.setdefault(place.at, sequence)
        assert index.era == 0
        for at in found:
            follows = index.following(at, 3)
            assert follows == (tuple(A[50:53].tolist()) if at in {p.at for p in places} else ())
    assert len(found) == 19
