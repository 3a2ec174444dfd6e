"""The shelf of snapshots: written by a thread of its own, once each, few of a kind, and never in the way."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from tensorfold.application.ports.target_model import LaneImage
from tensorfold.application.snapshots import MOST_BYTES, MOST_CONVERSATIONS, MOST_SYSTEMS, SnapshotShelf
from tensorfold.domain.prompts.chunks import ChunkPlan
from tensorfold.domain.prompts.retained import Prefix, ids_of
from tests.fakes.stores import FakeSnapshotStore


def prefix(*ids: int, size: int = 8) -> Prefix[LaneImage]:
    image = LaneImage(len(ids), (("layers.0.keys", b"x" * 8),), "engine")
    return Prefix(ids_of(ids), (0,), image, size)


def plan(end: int, *starts: int) -> ChunkPlan:
    return ChunkPlan((0, *starts), end)


def test_a_shared_beginning_is_written_once_and_made_the_newest_after() -> None:
    store = FakeSnapshotStore()
    shelf = SnapshotShelf(store)
    for ids in ((1, 2), (3, 4), (1, 2)):
        shelf.keep_system(prefix(*ids))
    shelf.close()
    assert store.saved == ["system", "system"] and len(shelf) == 2
    assert [s.ids.tolist() for s in store.held()] == [[1, 2], [3, 4]]


def test_only_so_many_of_a_kind_stay() -> None:
    store = FakeSnapshotStore()
    shelf = SnapshotShelf(store)
    for n in range(MOST_SYSTEMS + 3):
        shelf.keep_system(prefix(n, n))
        threading.Event().wait(0.002)
    shelf.keep_conversations([prefix(50 + n) for n in range(4)])
    shelf.close()
    kinds = [s.kind for s in store.held()]
    assert kinds.count("system") == MOST_SYSTEMS and kinds.count("conversation") == MOST_CONVERSATIONS


def test_a_conversation_larger_than_the_disk_may_hold_is_left_out() -> None:
    store = FakeSnapshotStore()
    shelf = SnapshotShelf(store)
    shelf.keep_conversations([prefix(1, size=MOST_BYTES + 1), prefix(2)])
    shelf.close()
    assert not store.held()


def test_the_longest_that_a_prompt_passes_through_is_matched() -> None:
    store = FakeSnapshotStore()
    for kept in ((1, 2), (1, 2, 3, 4), (9, 9)):
        store.save("conversation", ids_of(kept), (0,), prefix(*kept).state)
    shelf = SnapshotShelf(store)
    ids = ids_of([1, 2, 3, 4, 5, 6])
    found = shelf.match(ids, plan(5, 4), 0)
    assert found is not None and found.ids.tolist() == [1, 2, 3, 4] and shelf.size == 24
    assert shelf.match(ids, plan(5, 4), 4) is None
    shorter = shelf.match(ids, plan(5, 2), 0)
    assert shorter is not None and shorter.ids.tolist() == [1, 2]
    assert shelf.match(ids_of([1, 3, 3, 4, 5]), plan(4, 2), 0) is None


def test_what_cannot_be_loaded_is_matched_no_more() -> None:
    store = FakeSnapshotStore()
    saved = store.save("conversation", ids_of([1, 2]), (0,), prefix(1, 2).state)
    wrong = store.save("conversation", ids_of([3, 4]), (0,), prefix(3).state)
    assert saved is not None and wrong is not None
    shelf = SnapshotShelf(store)
    store.spoil(saved.key)
    assert shelf.load(saved) is None and shelf.load(wrong) is None
    assert shelf.match(ids_of([1, 2, 3]), plan(2), 0) is None and len(shelf) == 0
    shelf.close()


def test_a_write_that_takes_long_keeps_nobody_waiting_and_what_is_too_much_is_told() -> None:
    free, lines, store = threading.Event(), list[str](), FakeSnapshotStore()

    class Slow(FakeSnapshotStore):
        def save(self, *given: Any) -> Any:
            free.wait(10.0)
            return super().save(*given)

    store = Slow()
    shelf = SnapshotShelf(store, lines.append)
    for n in range(30):
        shelf.keep_system(prefix(n))
    assert any("too many wait" in line for line in lines)
    free.set()
    shelf.close()
    shelf.close()
    shelf.keep_system(prefix(99))
    assert store.held() and not any(np.array_equal(s.ids, [99]) for s in store.held())


def test_a_store_that_breaks_is_told_without_what_it_was_about() -> None:
    lines: list[str] = []

    class Broken(FakeSnapshotStore):
        def save(self, *given: Any) -> Any:
            raise RuntimeError(f"ids {given}")

    shelf = SnapshotShelf(Broken(), lines.append)
    shelf.keep_system(prefix(1, 2))
    shelf.close()
    assert len(lines) == 1 and lines[0].startswith("a snapshot was not written: RuntimeError in ")
