"""A reply's text as its bytes arrive: whole characters only, and nothing that a stop string may still take back.

However the bytes are grouped, the text is the same: what stands before the first completed stop, decoded as UTF-8 with
one U+FFFD for each maximal malformed sequence. Uses the matcher of the gate that ends the reply.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.gates.stop_strings import StopMatcher

_decoder = codecs.getincrementaldecoder("utf-8")


class StoppedText:
    """Text of bytes up to a stop string. Not for several threads at once."""

    __slots__ = ("_decoder", "_held", "_matcher", "_state", "_stopped")

    def __init__(self, stops: Sequence[bytes] = ()) -> None:
        self._matcher = StopMatcher(stops)
        self._decoder = _decoder("replace")
        self._state = 0
        self._held = b""
        self._stopped = False

    def add(self, data: bytes) -> str:
        """Text that the bytes of one token make certain; empty after a completed stop string."""
        return self._decoder.decode(self.release(data))

    def release(self, data: bytes) -> bytes:
        """The bytes that can be shown for certain once these are known; `decode` makes text of them."""
        if self._stopped:
            return b""
        if not self._matcher:
            return data
        self._state, match = self._matcher.step(self._state, data)
        ready = self._held + data
        if match is not None:
            self._stopped, self._held = True, b""
            return ready[: len(ready) - match.back]
        shown = len(ready) - self._matcher.held(self._state)
        self._held = ready[shown:]
        return ready[:shown]

    def decode(self, data: bytes) -> str:
        """Text of released bytes."""
        return self._decoder.decode(data)

    def finish(self, stopped: bool = False) -> str:
        """The text still held back, when no more bytes come.

        `stopped` tells that a stop string ended the reply: what is held as its possible beginning is not shown.
        """
        held, self._held, self._stopped = self._held, b"", True
        return self._decoder.decode(b"" if stopped else held, final=True)


class ReplyText:
    """The text of one reply's ids, all of it answer. Not for several threads at once."""

    __slots__ = ("_begun", "_bytes", "_text")

    def __init__(self, token_bytes: TokenBytes, stops: Sequence[bytes] = ()) -> None:
        self._bytes = token_bytes
        self._text = StoppedText(stops)
        self._begun = False

    def feed(self, ids: Iterable[int]) -> str:
        """Text that `ids` make certain; empty after a completed stop string."""
        return self._text.decode(b"".join(map(self._release, ids)))

    def finish(self, stopped: bool = False) -> str:
        """The text still held back, when no more ids come; `stopped` as in StoppedText."""
        return self._text.finish(stopped)

    def _release(self, token: int) -> bytes:
        data, self._begun = self._bytes.shown(token, self._begun)
        return self._text.release(data)
