"""A link between ranks: numbered messages, whole and in order, and every fault of the wire noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tensorfold.application.ports.services import RankLink
from tests.contracts.candidates import refuses


@dataclass(frozen=True, slots=True)
class LinkSubject:
    """Two connected ends, and what a test can do to the way from rank 0 to rank 1: hang up, lose, swap, repeat."""

    zero: RankLink
    one: RankLink
    hang_up: Callable[[], None]
    lose: Callable[[], None]
    swap: Callable[[], None]
    repeat: Callable[[], None]


def messages_arrive_whole_in_order_and_numbered(subject: LinkSubject) -> None:
    """Both ways; numbers count up from the same start on each."""
    assert (subject.zero.rank, subject.one.rank) == (0, 1)
    messages = [b"", b"a", bytes(range(256)) * 40]
    sent = [subject.zero.send(message) for message in messages]
    back = [subject.one.send(message) for message in reversed(messages)]
    assert sent == list(range(sent[0], sent[0] + 3)) and back == sent
    assert [subject.one.receive() for _ in messages] == list(zip(sent, messages, strict=True))
    assert [subject.zero.receive() for _ in messages] == list(zip(back, reversed(messages), strict=True))


def a_lost_message_is_noticed(subject: LinkSubject) -> None:
    """By the next one's number."""
    subject.zero.send(b"first")
    subject.zero.send(b"second")
    subject.lose()
    refuses(subject.one.receive, ConnectionError)


def messages_out_of_order_are_noticed(subject: LinkSubject) -> None:
    """So is one that comes twice."""
    subject.zero.send(b"first")
    subject.zero.send(b"second")
    subject.swap()
    refuses(subject.one.receive, ConnectionError)


def a_repeated_message_is_noticed(subject: LinkSubject) -> None:
    """Once it comes again."""
    subject.zero.send(b"first")
    subject.repeat()
    assert subject.one.receive()[1] == b"first"
    refuses(subject.one.receive, ConnectionError)


def a_peer_that_hung_up_is_noticed(subject: LinkSubject) -> None:
    """After what it had sent was read."""
    subject.zero.send(b"last words")
    subject.hang_up()
    assert subject.one.receive()[1] == b"last words"
    refuses(subject.one.receive, ConnectionError)
