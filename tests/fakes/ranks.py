"""Two ends of a numbered link inside one process, with a wire that a test can cut, thin out and shuffle."""

from __future__ import annotations

import threading
from collections import deque


class FakeWire:
    """Messages on their way to one rank."""

    def __init__(self) -> None:
        self.messages: deque[tuple[int, bytes]] = deque()
        self.changed = threading.Condition()
        self.closed = False

    def lose(self) -> None:
        """Drop the oldest message on its way."""
        with self.changed:
            self.messages.popleft()

    def swap(self) -> None:
        """Let the two oldest messages change places."""
        with self.changed:
            first, second = self.messages.popleft(), self.messages.popleft()
            self.messages.extendleft((first, second))

    def repeat(self) -> None:
        """Deliver the oldest message twice."""
        with self.changed:
            self.messages.appendleft(self.messages[0])


class FakeRankLink:
    """One end: sends into `outgoing`, receives from `incoming`; numbers start at 0 on each wire."""

    def __init__(self, rank: int, outgoing: FakeWire, incoming: FakeWire, patience: float = 30.0) -> None:
        self._rank = rank
        self.outgoing = outgoing
        self.incoming = incoming
        self._patience = patience
        self._sent = 0
        self._expected = 0

    @property
    def rank(self) -> int:
        """As constructed."""
        return self._rank

    def send(self, message: bytes) -> int:
        """Ship one message; the bytes are copied."""
        with self.outgoing.changed:
            if self.outgoing.closed:
                raise ConnectionError("the peer is gone")
            number = self._sent
            self._sent += 1
            self.outgoing.messages.append((number, bytes(message)))
            self.outgoing.changed.notify_all()
        return number

    def receive(self) -> tuple[int, bytes]:
        """The next message; messages sent before the peer closed still arrive."""
        with self.incoming.changed:
            came = self.incoming.changed.wait_for(
                lambda: self.incoming.messages or self.incoming.closed, timeout=self._patience
            )
            if not came or not self.incoming.messages:
                raise ConnectionError("the peer is gone")
            number, message = self.incoming.messages.popleft()
        if number != self._expected:
            raise ConnectionError(f"message {number} came where {self._expected} was due")
        self._expected += 1
        return number, message

    def close(self) -> None:
        """Hang up: the peer's next receive on an empty wire fails, and so do sends to this end."""
        for wire in (self.outgoing, self.incoming):
            with wire.changed:
                wire.closed = True
                wire.changed.notify_all()


def rank_pair() -> tuple[FakeRankLink, FakeRankLink]:
    """Rank 0 and rank 1, connected."""
    forth, back = FakeWire(), FakeWire()
    return FakeRankLink(0, forth, back), FakeRankLink(1, back, forth)
