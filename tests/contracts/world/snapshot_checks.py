"""Snapshots: a saved image is loaded whole or not at all, whoever saved it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.application.ports.stores import SnapshotStore
from tensorfold.application.ports.target_model import LaneImage


@dataclass(frozen=True, slots=True)
class SnapshotSubject:
    """`store` makes one more store over the same folder; `spoil` damages what is kept under a key."""

    store: Callable[[], SnapshotStore]
    spoil: Callable[[bytes], None]


def _image(length: int) -> LaneImage:
    return LaneImage(length, (("layers.0.keys", bytes(range(256))), ("layers.0.values", b"")), "an engine")


def a_saved_image_is_loaded_whole(subject: SnapshotSubject) -> None:
    """Also by a store that opens later."""
    subject.store().save(b"a", _image(7))
    assert subject.store().load(b"a") == _image(7)


def a_missing_image_is_none(subject: SnapshotSubject) -> None:
    """And deleting it is fine."""
    store = subject.store()
    assert store.load(b"missing") is None
    store.delete(b"missing")


def keys_are_listed_newest_first(subject: SnapshotSubject) -> None:
    """A key that is saved again is the newest, with its new image."""
    store = subject.store()
    for key in (b"a", b"b\x00\xff", b"c" * 32):
        store.save(key, _image(1))
    store.save(b"a", _image(2))
    assert list(store.keys()) == [b"a", b"c" * 32, b"b\x00\xff"]
    assert store.load(b"a") == _image(2)
    store.delete(b"c" * 32)
    assert list(store.keys()) == [b"a", b"b\x00\xff"]


def a_damaged_image_is_not_loaded(subject: SnapshotSubject) -> None:
    """The others are."""
    store = subject.store()
    store.save(b"a", _image(1))
    store.save(b"b", _image(2))
    subject.spoil(b"a")
    assert subject.store().load(b"a") is None
    assert subject.store().load(b"b") == _image(2)
