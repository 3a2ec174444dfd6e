"""The record of ids: what was appended is there after closing and opening again; one writer at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.application.ports.stores import RecallStore


@dataclass(frozen=True, slots=True)
class RecallSubject:
    """`store` makes one more store over the same folder, as another process would."""

    store: Callable[[], RecallStore]


def _ids(store: RecallStore) -> list[int]:
    return [int(token) for chunk in store.chunks() for token in chunk]


def a_fresh_record_is_on_and_empty(subject: RecallSubject) -> None:
    """And holds nothing."""
    store = subject.store()
    state = store.open()
    assert state == store.state() and (state.state, state.reason) == ("on", "")
    assert _ids(store) == []
    store.close()


def pieces_are_kept_in_order_over_closing(subject: RecallSubject) -> None:
    """Every id, oldest first, also for a store that only opens later."""
    pieces = [[1, 2, 3], [4] * 700, [2**31 + 5, 0], list(range(900))]
    store = subject.store()
    store.open()
    for piece in pieces:
        store.append(piece)
    store.close()
    later = subject.store()
    assert later.open().bytes_on_disk > 0
    assert _ids(later) == [token for piece in pieces for token in piece]
    later.close()


def a_second_store_reads_and_does_not_write(subject: RecallSubject) -> None:
    """Until the first one closed."""
    first, second = subject.store(), subject.store()
    first.open()
    first.append([1, 2, 3])
    state = second.open()
    assert state.state == "second" and state.reason
    second.append([7, 8, 9])
    second.close()
    first.close()
    third = subject.store()
    assert third.open().state == "on"
    assert _ids(third) == [1, 2, 3]
    third.close()


def deleting_leaves_an_empty_record_that_goes_on(subject: RecallSubject) -> None:
    """Nothing of the old ids stays."""
    store = subject.store()
    store.open()
    store.append([1, 2, 3])
    state = store.delete_all()
    assert (state.state, state.bytes_on_disk) == ("on", 0) and _ids(store) == []
    store.append([4, 5])
    store.close()
    later = subject.store()
    later.open()
    assert _ids(later) == [4, 5]
    later.close()


def closing_twice_is_harmless(subject: RecallSubject) -> None:
    """And gives the lock back once."""
    store = subject.store()
    store.open()
    store.close()
    store.close()
    assert subject.store().open().state == "on"
