"""What a start says about releases: asked once a day, never waited for, silent about everything that goes wrong."""

from __future__ import annotations

import threading

import pytest

from tensorfold.application.ports.services import Release
from tensorfold.application.release_check import KEPT_S, ReleaseCheck, first_serve_line
from tensorfold.application.releases import read_address
from tests.fakes.clock import FakeClock
from tests.fakes.installation import FakeUpdateMemory
from tests.fakes.services import FakeReleaseFeed

PAGE = "https://github.com/owner/name"
ADDRESS = read_address(PAGE)
NEWER = f"tensorfold v0.2.0 is out, this is 0.1.0: {PAGE}/releases/tag/v0.2.0 (`tensorfold update` installs it)"


class Start:
    """One server's start after another, on the same cache."""

    def __init__(self, tag: str | None = "v0.2.0", version: str = "0.1.0") -> None:
        self.feed = FakeReleaseFeed(None if tag is None else Release(tag, "elsewhere"))
        self.memory, self.clock = FakeUpdateMemory(), FakeClock()
        self.said: list[str] = []
        self.version = version

    def check(self) -> ReleaseCheck:
        assert ADDRESS is not None
        return ReleaseCheck(self.feed, self.memory, self.clock, ADDRESS, self.version, self.said.append)

    def run(self) -> list[str]:
        """What one start says."""
        self.said.clear()
        self.check().start().join()
        return list(self.said)


def test_a_newer_release_is_one_line_whose_address_is_our_own() -> None:
    assert Start().run() == [NEWER]


def test_an_answer_is_kept_for_a_day_and_asked_for_again_after_it() -> None:
    start = Start()
    assert start.run() == start.run() == [NEWER]
    assert start.feed.asked == [3.0]
    start.clock.advance(KEPT_S - 1)
    assert start.run() == [NEWER] and len(start.feed.asked) == 1
    start.clock.advance(1)
    assert start.run() == [NEWER] and len(start.feed.asked) == 2


def test_an_answer_from_the_future_or_of_no_form_is_asked_for_again() -> None:
    start = Start()
    for kept in (("v0.2.0", start.clock.wall() + 60), ("latest", start.clock.wall())):
        start.memory.check = kept
        assert start.run() == [NEWER]
    assert len(start.feed.asked) == 2


@pytest.mark.parametrize("tag", [None, "v0.1.0", "v0.0.9", "latest", "v0.2.0;rm"])
def test_no_newer_release_and_no_answer_are_silent(tag: str | None) -> None:
    assert Start(tag).run() == []


def test_no_answer_is_not_remembered() -> None:
    start = Start(None)
    start.run()
    assert start.memory.check is None
    start.feed.release = Release("v0.2.0", "elsewhere")
    assert start.run() == [NEWER]


def test_a_version_that_cannot_be_compared_is_silent() -> None:
    assert Start(version="0.1.0.dev1").run() == []


def test_a_feed_that_breaks_is_silent() -> None:
    start = Start()

    def broken(timeout: float) -> None:
        raise RuntimeError("broken")

    start.feed.latest = broken  # type: ignore[method-assign]
    heard: list[object] = []
    before, threading.excepthook = threading.excepthook, heard.append
    try:
        assert start.run() == []
    finally:
        threading.excepthook = before
    assert heard == []


def test_a_start_does_not_wait_for_the_feed() -> None:
    start, go = Start(), threading.Event()
    answer = start.feed.latest

    def slow(timeout: float) -> Release | None:
        go.wait()
        return answer(timeout)

    start.feed.latest = slow  # type: ignore[method-assign]
    thread = start.check().start()
    assert thread.daemon and start.said == []
    go.set()
    thread.join()
    assert start.said == [NEWER]


def test_a_version_says_once_that_it_serves_for_the_first_time() -> None:
    memory = FakeUpdateMemory()
    line = first_serve_line(memory, "0.1.0", ADDRESS)
    assert line == f"first start of version 0.1.0; what is new: {PAGE}/releases/tag/v0.1.0"
    assert first_serve_line(memory, "0.1.0", ADDRESS) is None
    assert "0.2.0" in (first_serve_line(memory, "0.2.0", None) or "")
    # Going back and forth again brings nothing new.
    assert first_serve_line(memory, "0.1.0", ADDRESS) is first_serve_line(memory, "0.2.0", ADDRESS) is None
    assert memory.version == "0.2.0"


def test_a_memory_of_no_form_counts_as_none() -> None:
    memory = FakeUpdateMemory()
    memory.version = "nonsense"
    assert first_serve_line(memory, "0.1.0", ADDRESS) is not None


@pytest.mark.parametrize("version", ["0.1.0.dev1", "0.1.0"])
def test_where_nothing_is_remembered_nothing_is_said_at_every_start(version: str) -> None:
    assert first_serve_line(FakeUpdateMemory(full=version == "0.1.0"), version, ADDRESS) is None
