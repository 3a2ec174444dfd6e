"""Snapshots: a saved image is loaded whole or not at all, whoever saved it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tensorfold.application.ports.stores import Snapshot, SnapshotKind, SnapshotStore
from tensorfold.application.ports.target_model import LaneImage


@dataclass(frozen=True, slots=True)
class SnapshotSubject:
    """`store` makes one more store over the same folder; `spoil` damages what is kept under a key."""

    store: Callable[[], SnapshotStore]
    spoil: Callable[[str], None]


def _image(length: int) -> LaneImage:
    return LaneImage(length, (("layers.0.keys", bytes(range(256))), ("layers.0.values", b"")), "an engine")


def _save(store: SnapshotStore, length: int, kind: SnapshotKind = "conversation") -> Snapshot:
    saved = store.save(kind, np.arange(length, dtype=np.int32), (0,), _image(length))
    assert saved is not None
    return saved


def _lengths(store: SnapshotStore) -> list[int]:
    return [len(snapshot.ids) for snapshot in store.held()]


def a_saved_image_is_loaded_whole(subject: SnapshotSubject) -> None:
    """Also by a store that opens later, which finds it by its ids and chunks."""
    ids = np.array([5, 0, 2**31 - 1], np.int32)
    saved = subject.store().save("system", ids, (0, 2), _image(3))
    later = subject.store()
    (found,) = later.held()
    assert saved is not None and found.key == saved.key
    assert (found.kind, found.ids.tolist(), found.starts) == ("system", ids.tolist(), (0, 2))
    assert later.load(found.key) == _image(3)


def a_missing_image_is_none(subject: SnapshotSubject) -> None:
    """And touching or deleting it is fine."""
    store = subject.store()
    assert store.load("0" * 32) is None
    store.touch("0" * 32)
    store.delete("0" * 32)
    store.prune("system", 0)
    assert _lengths(store) == []


def images_are_listed_newest_first(subject: SnapshotSubject) -> None:
    """One that is saved again or touched is the newest."""
    store = subject.store()
    kept = [_save(store, length) for length in (1, 2, 3)]
    assert _lengths(store) == [3, 2, 1]
    _save(store, 1)
    assert _lengths(store) == [1, 3, 2]
    store.touch(kept[1].key)
    assert _lengths(subject.store()) == [2, 1, 3]
    store.delete(kept[2].key)
    assert _lengths(store) == [2, 1]


def a_damaged_image_is_not_loaded(subject: SnapshotSubject) -> None:
    """The others are."""
    store = subject.store()
    bad, good = _save(store, 1), _save(store, 2)
    subject.spoil(bad.key)
    assert subject.store().load(bad.key) is None
    assert subject.store().load(good.key) == _image(2)


def the_oldest_of_a_kind_go(subject: SnapshotSubject) -> None:
    """By number and by bytes; those of the other kind stay."""
    store = subject.store()
    other = _save(store, 9, "system")
    sizes = [_save(store, length).size for length in (1, 2, 3)]
    store.prune("conversation", 2)
    assert _lengths(store) == [3, 2, 9]
    store.prune("conversation", 2, sizes[2])
    assert _lengths(store) == [3, 9]
    store.prune("conversation", 0)
    assert [snapshot.key for snapshot in store.held()] == [other.key]
