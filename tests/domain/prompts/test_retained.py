"""Kept states: what is matched, what goes first, and limits that hold after any sequence of calls."""

from __future__ import annotations

import random

import pytest

from tensorfold.domain.prompts.chunks import ChunkPlan, ChunkRule
from tensorfold.domain.prompts.retained import PINNED, Prefix, RetainedPrefixes, ids_of

GRID = ChunkRule(4, least=4)
IDS = list(range(20))


def entry(ids: list[int], size: int = 1, *, pinned: bool = False, seconds: float = 0.0) -> Prefix[str]:
    plan = GRID.plan([*ids, 0])
    return Prefix(ids_of(ids), plan.before(len(ids)), f"state of {ids}", size, seconds, pinned)


def match(store: RetainedPrefixes[str], ids: list[int]) -> int:
    found = store.match(ids_of(ids), GRID.plan(ids))
    return 0 if found is None else found.length


def test_the_longest_state_that_a_prompt_passes_through_is_matched() -> None:
    store = RetainedPrefixes[str](10)
    for length in (4, 8, 16):
        assert store.insert(entry(IDS[:length]))
    assert match(store, IDS) == 16
    assert match(store, IDS[:16]) == 8  # one id must be left, and 15 is no cut behind 12 that was kept
    assert match(store, IDS[:17]) == 16
    assert match(store, [*IDS[:9], 99, *IDS[10:]]) == 8
    assert match(store, [99, *IDS[1:]]) == 0


def test_a_state_that_is_no_cut_of_the_prompt_is_not_matched() -> None:
    store = RetainedPrefixes[str](10)
    assert store.insert(Prefix(ids_of(IDS[:6]), (0, 4), "mid chunk", 1))
    assert match(store, IDS) == 0
    assert store.match(ids_of(IDS), ChunkPlan((0, 4, 8), 19, slice_rows=2)) is not None
    assert store.match(ids_of(IDS), ChunkPlan((0, 3), 19, slice_rows=1)) is None


def test_what_a_conversation_left_behind_goes_before_another_conversation() -> None:
    store = RetainedPrefixes[str](3)
    store.insert(entry([50, 51, 52, 53]))
    store.insert(entry(IDS[:4], seconds=100.0))
    store.insert(entry(IDS[:8]))
    store.insert(entry([60, 61, 62, 63]))
    assert match(store, [50, 51, 52, 53, 54]) == 4
    assert match(store, IDS[:7]) == 0
    assert match(store, IDS[:10]) == 8


def test_states_that_save_more_for_their_bytes_stay_longer() -> None:
    store = RetainedPrefixes[str](30)
    store.insert(entry([1] * 4, 10, seconds=9.0))
    store.insert(entry([2] * 4, 10, seconds=1.0))
    store.insert(entry([3] * 4, 10, seconds=9.0))
    store.insert(entry([4] * 4, 10, seconds=1.0))
    assert [match(store, [n] * 5) for n in (1, 2, 3, 4)] == [4, 0, 4, 4]


def test_pinned_states_go_last_and_only_so_many_are_pinned() -> None:
    store = RetainedPrefixes[str](100, slots=2)
    for n in range(PINNED + 1):
        store.insert(entry([n] * 4, pinned=True))
    assert sum(e.pinned for e in store) == PINNED
    for n in range(10, 14):
        store.insert(entry([n] * 4))
    assert [match(store, [n] * 5) for n in range(PINNED + 1)] == [0, 4, 4, 4]
    assert [store.evict_one() is not None for _ in range(6)] == [True] * 5 + [False]


def test_what_is_in_use_is_never_evicted_nor_replaced() -> None:
    store = RetainedPrefixes[str](10)
    used = entry(IDS[:4], 8)
    store.insert(used)
    assert store.evict_one(keep=used) is None
    assert not store.insert(entry(IDS[:8], 4), keep=used)
    assert not store.insert(entry(IDS[:4], 4), keep=used)
    assert list(store) == [used]
    assert store.insert(entry(IDS[:8], 4))
    assert [e.length for e in store] == [8]


def test_a_state_behind_the_same_ids_is_replaced_and_stays_pinned() -> None:
    store = RetainedPrefixes[str](10)
    store.insert(entry(IDS[:4], 2, pinned=True))
    store.insert(entry(IDS[:4], 3))
    (only,) = store
    assert only.size == 3 and only.pinned
    store.take(only)
    store.take(only)
    assert len(store) == 0 and store.size == 0


def test_a_budget_of_nothing_keeps_nothing() -> None:
    assert not RetainedPrefixes[str](0).insert(entry(IDS[:4]))
    assert not RetainedPrefixes[str](10, slots=0).insert(entry(IDS[:4]))
    with pytest.raises(ValueError, match="cannot be kept"):
        RetainedPrefixes[str](-1)


def test_limits_hold_after_any_sequence_of_calls() -> None:
    random_, evicted = random.Random(9), 0
    for _ in range(60):
        budget, slots = random_.randrange(1, 40), random_.randrange(0, 6)
        store = RetainedPrefixes[str](budget, slots)
        for _ in range(60):
            ids = [random_.randrange(2) for _ in range(4 * random_.randrange(1, 5))]
            held = list(store)
            keep = random_.choice(held) if held else None
            act = random_.random()
            if act < 0.7:
                store.insert(entry(ids, random_.randrange(1, 20), pinned=random_.random() < 0.3), keep)
                assert keep is None or keep in list(store)
            elif act < 0.8:
                evicted += store.evict_one(keep) is not None
                assert keep is None or keep in list(store)
            elif keep is not None and act < 0.9:
                store.use(keep, ids_of(ids))
            elif keep is not None:
                store.take(keep)
            assert store.size <= budget
            assert sum(not e.pinned for e in store) <= slots
            assert sum(e.pinned for e in store) <= PINNED
    assert evicted > 50
