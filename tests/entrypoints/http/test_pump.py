"""The thread that moves every reply's deltas: what it takes, what it leaves to others, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tensorfold.application.text_replies import ReplyDelta, ReplyDone, ReplyError, ReplyEvent
from tensorfold.entrypoints.http.pump import Pump, Tap
from tests.entrypoints.http.fakes import FakeReply

WAIT_S = 30.0


class FakeSink:
    """Keeps what it takes; refuses from the `takes`-th text on, or raises there."""

    def __init__(self, takes: int = 10**9, fault: Exception | None = None) -> None:
        self.texts: list[str] = []
        self.room = takes
        self.fault = fault
        self.called = threading.Event()
        self.waiting = False
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.leave.set()

    def take(self, deltas: list[ReplyDelta]) -> bool:
        self.entered.set()
        assert self.leave.wait(WAIT_S)
        if len(self.texts) + len(deltas) > self.room:
            if self.fault is not None:
                raise self.fault
            return False
        self.texts += [delta.text for delta in deltas]
        return True

    def calls(self) -> bool:
        self.called.set()
        return self.waiting


@pytest.fixture
def pump() -> Iterator[Pump]:
    running = Pump()
    running.start()
    yield running
    running.stop()


def handed(tap: Tap) -> ReplyEvent:
    """The next event that came out of a tap."""
    for _ in range(1000):
        if (event := tap.next(WAIT_S)) is not None:
            return event
    raise AssertionError("nothing was handed over")


def test_deltas_go_to_the_sink_and_the_end_to_the_requests_thread(pump: Pump) -> None:
    reply, sink = FakeReply(), FakeSink()
    reply.say("early")
    tap = pump.attach(reply, sink)
    for text in "abc":
        reply.say(text)
    reply.end()
    assert isinstance(handed(tap), ReplyDone)
    assert sink.texts == ["early", "a", "b", "c"]


def test_a_reply_that_was_over_before_it_was_attached_is_moved_whole(pump: Pump) -> None:
    reply, sink = FakeReply(), FakeSink()
    reply.say("a")
    reply.fail("broken")
    assert isinstance(handed(pump.attach(reply, sink)), ReplyError)
    assert sink.texts == ["a"]


def test_a_long_backlog_is_moved_whole(pump: Pump) -> None:
    reply, sink = FakeReply(), FakeSink()
    for number in range(1000):
        reply.say(str(number))
    reply.end()
    assert isinstance(handed(pump.attach(reply, sink)), ReplyDone)
    assert sink.texts == [str(number) for number in range(1000)]


def test_many_replies_each_keep_their_order(pump: Pump) -> None:
    replies = [FakeReply() for _ in range(20)]
    sinks = [FakeSink() for _ in replies]
    taps = [pump.attach(reply, sink) for reply, sink in zip(replies, sinks, strict=True)]
    for number in range(200):
        for reply in replies:
            reply.say(str(number))
    for reply in replies:
        reply.end()
    for tap, sink in zip(taps, sinks, strict=True):
        assert isinstance(handed(tap), ReplyDone)
        assert sink.texts == [str(number) for number in range(200)]


def test_what_a_slow_sink_refuses_comes_out_of_the_tap_in_order_from_then_on(pump: Pump) -> None:
    reply, sink = FakeReply(), FakeSink(takes=2)
    tap = pump.attach(reply, sink)
    for text in "abcde":
        reply.say(text)
    sink.room = 100
    reply.say("f")
    reply.end()
    texts = []
    while isinstance(event := handed(tap), ReplyDelta):
        texts.append(event.text)
    assert sink.texts + texts == list("abcdef")
    assert isinstance(event, ReplyDone)


def test_what_a_sink_raises_comes_out_of_the_tap_and_the_pump_goes_on(pump: Pump) -> None:
    reply, sink = FakeReply(), FakeSink(takes=0, fault=RuntimeError("gone"))
    tap = pump.attach(reply, sink)
    reply.say("a")
    with pytest.raises(RuntimeError, match="gone"):
        handed(tap)
    other, taken = FakeReply(), FakeSink()
    end = pump.attach(other, taken)
    other.say("b")
    other.end()
    assert isinstance(handed(end), ReplyDone)
    assert taken.texts == ["b"]


def test_what_a_reply_raises_comes_out_of_the_tap(pump: Pump) -> None:
    reply = FakeReply()
    tap = pump.attach(reply, FakeSink())
    reply.push(ValueError("text"))
    with pytest.raises(ValueError, match="text"):
        handed(tap)


def test_after_a_seizure_the_sink_gets_nothing_more(pump: Pump) -> None:
    reply, sink = FakeReply(), FakeSink()
    tap = pump.attach(reply, sink)
    sink.leave.clear()
    reply.say("inside")
    assert sink.entered.wait(WAIT_S)
    seizing = threading.Thread(target=tap.seize)
    seizing.start()
    reply.say("after")
    reply.end()
    seizing.join(0.05)
    assert seizing.is_alive()  # it waits for the delta that is being taken
    sink.leave.set()
    seizing.join(WAIT_S)
    event = handed(tap)
    while isinstance(event, ReplyDelta):
        assert event.text == "after"
        event = handed(tap)
    assert isinstance(event, ReplyDone)
    assert "inside" in sink.texts


def test_a_requests_thread_is_called_when_its_sink_says_so(pump: Pump) -> None:
    sink = FakeSink()
    tap = pump.attach(FakeReply(), sink)
    assert sink.called.wait(WAIT_S)
    sink.waiting = True
    assert tap.next(WAIT_S) is None
    pump.detach(tap)


def test_busy_replies_do_not_keep_others_from_being_called(pump: Pump) -> None:
    busy, sink = FakeReply(), FakeSink()
    pump.attach(busy, FakeSink())
    done = threading.Event()

    def talk() -> None:
        while not done.is_set():
            busy.say("x")

    talker = threading.Thread(target=talk)
    talker.start()
    try:
        pump.attach(FakeReply(), sink)
        assert sink.called.wait(WAIT_S)
    finally:
        done.set()
        talker.join()


def test_a_detached_reply_is_looked_at_no_more(pump: Pump) -> None:
    sink = FakeSink()
    tap = pump.attach(FakeReply(), sink)
    pump.detach(tap)
    other = FakeSink()
    sink.called.clear()
    pump.attach(FakeReply(), other)
    for _ in range(2):
        other.called.clear()
        assert other.called.wait(WAIT_S)
    assert not sink.called.is_set()


def test_what_a_look_raises_comes_out_of_the_tap(pump: Pump) -> None:
    class Broken(FakeSink):
        def calls(self) -> bool:
            raise RuntimeError("look")

    tap = pump.attach(FakeReply(), Broken())
    with pytest.raises(RuntimeError, match="look"):
        handed(tap)


def test_a_pump_that_never_started_stops() -> None:
    Pump().stop()
