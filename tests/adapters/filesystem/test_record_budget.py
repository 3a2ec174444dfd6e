"""The budget holds after every call, whatever is added; the oldest goes first and is told of once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.recall.layout import LEAD_IDS
from tests.adapters.filesystem.records import CHUNK, CHUNKS, in_memory, pieces, run
from tests.fakes.record_files import MemoryRecordFiles

STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "add", "add", "add", "reopen", "empty", "wait"]), st.integers(1, 2 * CHUNK)),
    max_size=25,
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(STEPS, st.integers(2, 4))
@pytest.mark.slow
def test_files_never_take_more_than_the_budget_and_hold_what_was_told(
    steps: list[tuple[str, int]], chunks: int
) -> None:
    bench = in_memory()
    files = bench.files.files
    assert isinstance(files, MemoryRecordFiles)
    budget = chunks * CHUNK * 4

    def within(call: str, name: str) -> None:
        held = files.folder.contents or {}
        assert sum(len(data) for name, data in held.items() if name.endswith(".ids")) <= budget
        assert sum(name.endswith(".ids") for name in held) <= chunks

    bench.files.before = within
    store = bench.another(budget_bytes=budget)
    store.open()
    expected: dict[int, list[list[int]]] = {}
    first = 0
    for step, count in steps:
        if step == "add":
            added = store.append(run(count, first))
            first = (first + count) % 40_000
            # A piece longer than the budget makes room for its end at the cost of its beginning.
            known = [sequence for sequence in added.evicted if sequence in expected]
            assert list(added.evicted) == sorted(added.evicted) and known == sorted(expected)[: len(known)]
            assert known == list(added.evicted) or count > CHUNK
            for sequence in known:
                del expected[sequence]
            for part in added.parts:
                expected.setdefault(part.sequence, []).append(part.ids.tolist())
            assert store.state().state == "on"
        elif step == "reopen":
            store.close()
            store = bench.another(budget_bytes=budget)
            store.open()
        elif step == "empty":
            store.delete_all()
            expected.clear()
        else:
            bench.clock.advance(count)
            store.sync()
        assert pieces(store) == [piece for sequence in sorted(expected) for piece in expected[sequence]]
        assert store.state().bytes_on_disk <= budget


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(st.integers(17, 5 * CHUNK), min_size=1, max_size=12))
@pytest.mark.slow
def test_parts_put_together_without_their_leads_are_the_pieces(counts: list[int]) -> None:
    bench = in_memory()
    store = bench.another(budget_bytes=100 * CHUNK * 4)
    store.open()
    for at, count in enumerate(counts):
        piece = run(count, 100 * at)
        joined: list[int] = []
        for part in store.append(piece).parts:
            lead = min(LEAD_IDS, len(joined))
            assert part.ids[:lead].tolist() == joined[len(joined) - lead :] and (not joined or part.offset == 0)
            joined += part.ids[lead:].tolist()
        assert joined == piece.tolist()


def test_a_piece_longer_than_the_budget_keeps_its_end() -> None:
    bench = in_memory()
    bench.store.open()
    before = [bench.store.append(run(CHUNK, at)).parts[0].sequence for at in range(2)]
    added = bench.store.append(run(CHUNK * (CHUNKS + 3)))
    assert set(before) <= set(added.evicted) and len(added.parts) == CHUNKS
    assert [part.ids.tolist() for part in added.parts] == pieces(bench.store)
    assert added.parts[-1].ids[-1] == run(CHUNK * (CHUNKS + 3))[-1]
