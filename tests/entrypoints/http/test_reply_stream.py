"""The life of a stream between its events: silence, departures, the server's end, and a stream never begun."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tensorfold.application.text_replies import ReplyDelta, ReplyEvent
from tensorfold.entrypoints.http.envelope import Envelope
from tensorfold.entrypoints.http.frames import DONE, KEEP_ALIVE, ChatFrames
from tensorfold.entrypoints.http.gate import Gate
from tensorfold.entrypoints.http.outcome import Outcome, Shown
from tensorfold.entrypoints.http.reply_body import ClientLeftError, collect
from tensorfold.entrypoints.http.reply_stream import ReplyStream
from tensorfold.entrypoints.http.watch import Watch
from tests.entrypoints.http.fakes import FakeReply
from tests.entrypoints.http.wire import checked_error


class Hand:
    """A clock moved by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowReply(FakeReply):
    """Each pull takes a second of the clock and brings the next of the listed events."""

    def __init__(self, clock: Hand, *events: ReplyEvent | None) -> None:
        super().__init__()
        self._clock = clock
        self._listed = list(events)

    def next(self, timeout: float) -> ReplyEvent | None:
        self._clock.now += 1.0
        return self._listed.pop(0) if self._listed else super().next(0.0)


class Watched:
    """A stream over a clock moved by hand, with everything it told."""

    def __init__(self, reply: FakeReply, clock: Hand, gone: Callable[[], bool] = lambda: False) -> None:
        self.gate = Gate(1, clock)
        self.gate.enter()
        self.ends: list[Outcome] = []
        self.faults: list[BaseException] = []
        self.reply = reply
        self.watch = Watch(gone, self.gate, 0.1, 10.0, clock)
        frames = ChatFrames(Envelope("chatcmpl-1", "chat.completion.chunk", 1, "tiny", "fp_1"))
        self.stream = ReplyStream(
            reply, frames, Shown("fake"), self.watch, on_end=self.ends.append, on_fault=self.faults.append
        )


def test_ten_silent_seconds_bring_a_comment_and_every_event_begins_them_anew() -> None:
    clock = Hand()
    reply = SlowReply(clock, *[None] * 25, ReplyDelta("a", "", (1,)), *[None] * 12)
    reply.end()
    events = list(Watched(reply, clock).stream)
    kinds = ["comment" if event == KEEP_ALIVE else "text" if b'"a"' in event else "other" for event in events]
    assert kinds == ["other", "comment", "comment", "text", "comment", "other", "other"]


def test_a_reply_that_lands_tokens_but_shows_nothing_gets_comments_too() -> None:
    clock = Hand()
    reply = SlowReply(clock, *[ReplyDelta("", "", (1,))] * 21)
    reply.end()
    assert list(Watched(reply, clock).stream).count(KEEP_ALIVE) == 2


def test_a_client_that_leaves_ends_the_stream_at_the_next_look_and_is_told() -> None:
    clock = Hand()
    left = False
    reply = SlowReply(clock, *[ReplyDelta("a", "", (1,))] * 9)
    watched = Watched(reply, clock, lambda: left)
    stream = watched.stream
    next(stream)
    next(stream)
    left = True
    assert list(stream) == []
    assert not reply.cancelled.is_set()
    stream.close()
    assert reply.cancelled.is_set()
    assert watched.ends == [Outcome("left")]


def test_closing_twice_tells_the_end_once() -> None:
    clock = Hand()
    watched = Watched(SlowReply(clock), clock)
    watched.stream.close()
    watched.stream.close()
    assert len(watched.ends) == 1
    assert watched.reply.cancels == 1


def test_a_stream_that_is_never_begun_frees_its_reply_when_it_is_closed() -> None:
    clock = Hand()
    watched = Watched(SlowReply(clock), clock)
    watched.stream.close()
    assert watched.reply.cancelled.is_set()
    assert watched.ends == [Outcome("left")]


def test_a_write_that_fails_ends_the_reply_as_left() -> None:
    clock = Hand()
    watched = Watched(SlowReply(clock, ReplyDelta("a", "", (1,))), clock)
    next(watched.stream)
    next(watched.stream)
    watched.stream.close()  # what a server does when its client is gone in the middle
    assert watched.ends == [Outcome("left")]
    assert list(watched.stream) == []


@pytest.mark.parametrize("event", [None, ReplyDelta("", "", (1,)), ReplyDelta("a", "", (1,))])
def test_when_the_grace_is_over_a_stream_ends_with_an_error_event_however_busy_it_is(event: ReplyEvent | None) -> None:
    clock = Hand()
    watched = Watched(SlowReply(clock, *[event] * 100), clock)
    watched.gate.drain(5.0)
    *before, error, end = list(watched.stream)
    assert end == DONE
    assert len(before) <= 6
    found = checked_error(error.decode().removeprefix("data: "))
    assert (found["type"], found["code"]) == ("server_error", "overloaded")
    assert "shutting down" in found["message"]
    watched.stream.close()
    assert watched.ends == [Outcome("cut")]


def test_a_whole_reply_is_given_up_when_its_client_leaves_or_the_grace_is_over() -> None:
    clock = Hand()
    looks = iter([False, False, True])
    leaving = Watched(SlowReply(clock, *[None] * 9), clock, lambda: next(looks))
    with pytest.raises(ClientLeftError):
        collect(leaving.reply, leaving.watch)
    ending = Watched(SlowReply(clock, *[None] * 9), clock)
    ending.gate.drain(3.0)
    with pytest.raises(Exception, match="shutting down"):
        collect(ending.reply, ending.watch)


def test_the_outcome_of_a_whole_reply_carries_its_figures() -> None:
    clock = Hand()
    reply = SlowReply(clock, ReplyDelta("a", "", (1,)))
    reply.end("length", ids=(1,))
    watched = Watched(reply, clock)
    assert list(watched.stream)[-1] == DONE
    watched.stream.close()
    (outcome,) = watched.ends
    assert outcome.ending == "done"
    assert outcome.done is not None
    assert outcome.done.finish_reason == "length"
    assert not watched.faults
