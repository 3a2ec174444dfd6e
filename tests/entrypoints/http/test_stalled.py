"""Which connections are ended for taking no bytes, and the room for open files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tensorfold.entrypoints.http.channel import Channel
from tensorfold.entrypoints.http.descriptors import raise_descriptor_limit
from tensorfold.entrypoints.http.stalled import StalledReaders


class Reader(Channel):
    """A connection without a socket: bytes that wait, and when it last took some."""

    def __init__(self, waiting: int, last_activity: float) -> None:
        self.total_outbufs_len = waiting
        self.last_activity = last_activity
        self.closed = False

    def __del__(self) -> None:
        """There is nothing to close."""

    def handle_close(self) -> None:
        self.closed = True


def test_a_reader_that_takes_nothing_for_the_limit_is_closed_and_not_before() -> None:
    readers, stuck = StalledReaders(120.0), Reader(100, 5.0)
    assert [readers.drop([stuck], now) for now in (1000.0, 1060.0, 1119.0)] == [0, 0, 0]
    assert not stuck.closed
    assert readers.drop([stuck], 1120.0) == 1
    assert stuck.closed


def test_long_silence_before_the_first_waiting_byte_does_not_count() -> None:
    readers, quiet = StalledReaders(120.0), Reader(0, 5.0)
    assert readers.drop([quiet], 10_000.0) == 0
    quiet.total_outbufs_len = 10
    assert readers.drop([quiet], 10_001.0) == 0
    quiet.total_outbufs_len = 0
    assert readers.drop([quiet], 10_119.0) == 0
    quiet.total_outbufs_len = 10
    assert readers.drop([quiet], 10_122.0) == 0
    assert not quiet.closed


def test_a_slow_reader_that_takes_a_byte_now_and_then_stays() -> None:
    readers, slow = StalledReaders(120.0), Reader(100, 0.0)
    for step in range(20):
        slow.last_activity = float(step)
        assert readers.drop([slow], 100.0 * step) == 0
    assert not slow.closed


def test_one_stuck_reader_is_told_from_its_neighbours() -> None:
    readers = StalledReaders(10.0)
    stuck, lively = Reader(1, 0.0), Reader(1, 0.0)
    for step in range(11):
        lively.last_activity = float(step)
        readers.drop([stuck, lively], float(step))
    assert (stuck.closed, lively.closed) == (True, False)


@pytest.fixture
def limits() -> Iterator[None]:
    resource = pytest.importorskip("resource", reason="this system has no limit of open files")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_limit_of_open_files_is_raised_as_far_as_allowed_and_never_lowered(limits: None) -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(soft, 256)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    assert raise_descriptor_limit(lower + 100) == lower + 100
    assert raise_descriptor_limit(10) == lower + 100
    top = raise_descriptor_limit(hard + 1000 if hard != resource.RLIM_INFINITY else lower + 200)
    assert top == (hard if hard != resource.RLIM_INFINITY else lower + 200)
