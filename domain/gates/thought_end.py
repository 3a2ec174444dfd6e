"""Where a thought that the prompt left open ends, followed on the bytes of its tokens.

The thought ends with the first mark that closes it. A state is an immutable value, so that every branch of a window may
go its own way. Knows no grammar; it draws the border where the reader of replies does.
"""

from __future__ import annotations

from tensorfold.domain.conversation.thoughts import ThoughtMarks
from tensorfold.domain.conversation.token_bytes import TokenBytes

_LAYOUT = b"\n"

Tail = bytes | None
"""The last bytes of a thought, fewer than its closing mark has; None: the thought has ended."""


class ThoughtEnd:
    """Follows one kind of thought over one table of tokens. Immutable."""

    __slots__ = ("_bytes", "_close", "_straddling")

    def __init__(self, token_bytes: TokenBytes, marks: ThoughtMarks) -> None:
        self._bytes = token_bytes
        self._close = marks.close.encode()
        self._straddling = _straddling(token_bytes, self._close)

    @property
    def start(self) -> Tail:
        """The state of an open thought without a byte."""
        return b""

    def after(self, tail: Tail, token: int) -> Tail:
        """The state behind one more token."""
        if tail is None:
            return None
        text = tail + self._bytes.of(token)
        if self._close in text:
            return None
        return text[max(0, len(text) - len(self._close) + 1) :]

    def straddling(self, tail: Tail) -> list[int]:
        """Tokens that would close the thought and go on with an answer: a grammar could not see where that begins.

        Line breaks behind the mark are layout.
        """
        if tail is None:
            return []
        found = []
        for token in self._straddling:
            text = tail + self._bytes.of(token)
            at = text.find(self._close)
            if at >= 0 and text[at + len(self._close) :].strip(_LAYOUT):
                found.append(token)
        return found


def _straddling(token_bytes: TokenBytes, close: bytes) -> tuple[int, ...]:
    """Tokens that hold the mark's end, or all of it, with more than line breaks behind it."""
    last = close[-1:]
    return tuple(
        token
        for token, piece in enumerate(token_bytes.table)
        if last in piece[:-1] and token not in token_bytes.special and _straddles(piece, close)
    )


def _straddles(piece: bytes, close: bytes) -> bool:
    for at, byte in enumerate(piece[:-1]):
        head = piece[: at + 1]
        if byte == close[-1] and close.endswith(head[-len(close) :]) and piece[at + 1 :].strip(_LAYOUT):
            return True
    return False
