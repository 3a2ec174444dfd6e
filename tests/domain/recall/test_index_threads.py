"""A reader that never waits, beside a writer that adds, drops, reloads, empties and renumbers as fast as it can.

Every text is an arithmetic progression, so that whatever a reader is given can be checked by itself: it must go on as
the stream did. Anything torn, stale or joined from two texts would not.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tensorfold.domain.recall.chains import Chains
from tensorfold.domain.recall.index import RecordIndex
from tensorfold.domain.recall.layout import KEY_IDS, SEPARATOR, Ids, Part
from tensorfold.domain.recall.places import Place
from tests.domain.recall.records import SMALLEST

VOCABULARY = 1 << 20
STEPS = range(1, 9)
TURNS = 60
LENGTH = 300


@pytest.fixture(autouse=True)
def quick_switches() -> Iterator[None]:
    """Threads take turns every few steps instead of every few milliseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def progression(step: int, start: int, length: int = LENGTH) -> Ids:
    return np.arange(start, start + step * length, step, dtype=np.int32)


def write(index: RecordIndex, seed: int) -> None:
    """Adds pieces to chunks that come and go, and now and then reads a chunk whole or forgets everything."""
    rng = np.random.default_rng(seed)
    for sequence in range(1, TURNS + 1):
        pieces = [progression(int(rng.choice(STEPS)), int(rng.integers(0, 50))) for _ in range(12)]
        if sequence % 3:
            for number, piece in enumerate(pieces):
                index.add(Part(sequence, number * (LENGTH + 1), piece))
        else:
            breaks = np.full((len(pieces), 1), SEPARATOR, dtype=np.int32)
            index.load(sequence, np.hstack([np.stack(pieces), breaks]).ravel())
        if sequence % 7 == 0:
            index.drop([sequence - 1])
        if sequence % 17 == 0:
            index.clear()


class Reader:
    """Looks, follows and advances until it is told to stop; keeps what was wrong."""

    def __init__(self, index: RecordIndex, seed: int) -> None:
        self.index = index
        self.rng = np.random.default_rng(seed)
        self.stop = threading.Event()
        self.under_way = threading.Event()
        self.wrong: list[str] = []
        self.moved = threading.Event()

    def run(self) -> None:
        try:
            while not self.stop.is_set() and not self.wrong:
                self.look()
                self.under_way.set()
        except BaseException as fault:
            self.wrong.append(repr(fault))
        finally:
            self.under_way.set()

    def look(self) -> None:
        step = int(self.rng.choice(STEPS))
        length = int(self.rng.integers(KEY_IDS, 200))
        stream = progression(step, int(self.rng.integers(0, 50)), length).tolist()
        places = self.index.find(stream, 8)
        for place in places:
            self.check(KEY_IDS <= place.length <= length, f"{place} of {length}")
            self.goes_on(place, stream[-1], step)
        for _ in range(3):
            fresh = [stream[-1] + step * i for i in range(1, 5)]
            stream += fresh
            places = self.index.advance(places, fresh)
            for place in places:
                self.goes_on(place, stream[-1], step)
            if places:
                self.moved.set()

    def goes_on(self, place: Place, last: int, step: int) -> None:
        follows = self.index.following(place.at, 40)
        self.check(follows == tuple(last + step * i for i in range(1, len(follows) + 1)), f"{last} +{step}: {follows}")

    def check(self, right: bool, told: str) -> None:
        if not right:
            self.wrong.append(told)


@pytest.mark.parametrize("numbers", [4096, 5], ids=["plain", "renumbered all the time"])
def test_a_reader_is_never_given_what_was_not_in_the_record(numbers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorfold.domain.recall.index.Chains", lambda entries: Chains(entries, numbers))
    index = RecordIndex(SMALLEST, VOCABULARY)
    readers = [Reader(index, seed) for seed in (1, 2)]
    threads = [threading.Thread(target=reader.run, daemon=True) for reader in readers]
    for thread, reader in zip(threads, readers, strict=True):
        thread.start()
        assert reader.under_way.wait(60.0)
    try:
        write(index, 3)
        assert all(reader.moved.wait(60.0) for reader in readers)
    finally:
        for reader in readers:
            reader.stop.set()
        for thread in threads:
            thread.join(60.0)
    assert [reader.wrong for reader in readers] == [[], []]
    assert index.era == TURNS // 17
