"""A reply's bytes told apart into thought and answer, however they are cut into pieces.

Works on bytes, so that the gate of stop strings and the text that is shown draw the border at the same place. Newlines
at either end of a thought and those between it and the answer are layout of its markers and belong to neither.
"""

from __future__ import annotations

from dataclasses import dataclass

_BLANK = b" \t\r\n"

Part = tuple[bool, bytes]
"""Whether bytes are thought, and the bytes."""


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """What opens and closes a thought. `again`: it may be opened anew inside the answer, since its markers are tokens
    that a model does not quote; else only at the start of a reply, and later markers are text.
    """

    open: str
    close: str
    again: bool = False


class ThoughtSplitter:
    """Splits one reply. `inside` says whether the prompt left a thought open."""

    __slots__ = ("_again", "_close", "_fresh", "_held", "_may_repeat", "_open", "_state", "_thought_shown")

    def __init__(self, marks: ThoughtMarks, inside: bool) -> None:
        self._open = marks.open.encode()
        self._close = marks.close.encode()
        self._again = marks.again
        self._state = "thought" if inside else "start"
        self._fresh = self._may_repeat = inside
        self._thought_shown = False
        self._held = b""

    def copy(self) -> ThoughtSplitter:
        """One that goes on from here by itself."""
        other = object.__new__(ThoughtSplitter)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    @property
    def inside(self) -> bool:
        """Whether the bytes so far end in a thought."""
        return self._state == "thought"

    @property
    def undecided(self) -> bool:
        """Whether held bytes may turn out to open a thought."""
        return self._state != "thought" and bool(self._held)

    @property
    def settled(self) -> bool:
        """Whether all that follows is answer, byte for byte."""
        return self._state == "answer" and not self._again

    def feed(self, data: bytes) -> list[Part]:
        """What `data` makes certain, in order."""
        if self.settled:
            return [(False, data)] if data else []
        parts: list[Part] = []
        self._held += data
        while self._step(parts):
            pass
        return parts

    def finish(self) -> list[Part]:
        """What is still held, when no more bytes come."""
        held, self._held = self._held, b""
        if self._state == "after":
            return []
        return [(self._state == "thought", held)] if held else []

    def _step(self, parts: list[Part]) -> bool:
        """Take what can be taken of the held bytes; whether the state changed, so that more can."""
        match self._state:
            case "start":
                return self._start(parts)
            case "thought":
                return self._think(parts)
            case "after":
                return self._leave()
            case _:
                return self._answer(parts)

    def _start(self, parts: list[Part]) -> bool:
        body = self._held.lstrip(_BLANK)
        if body.startswith(self._open):
            self._enter(body[len(self._open) :], parts)
            return True
        if self._open.startswith(body):
            return False
        self._state = "answer"
        return True

    def _enter(self, rest: bytes, parts: list[Part]) -> None:
        if self._thought_shown:
            # The line break that stood before the last close parts two thoughts.
            parts.append((True, b"\n"))
        self._state, self._fresh, self._held = "thought", True, rest

    def _think(self, parts: list[Part]) -> bool:
        if self._fresh and not self._begin():
            return False
        at = self._held.find(self._close)
        if at < 0:
            kept = len(self._held) - held_prefix(self._held, self._close)
            self._show(self._held[:kept].rstrip(b"\n"), parts)
            return False
        self._show(self._held[:at].rstrip(b"\n"), parts, self._held[at + len(self._close) :])
        self._state = "after"
        return True

    def _begin(self) -> bool:
        """Leave out what stands before a thought; whether it is certain that the thought begins here."""
        self._held = self._held.lstrip(b"\n")
        if self._may_repeat and self._held.startswith(self._open):
            # The model opens what the prompt had opened.
            self._held, self._may_repeat = self._held[len(self._open) :].lstrip(b"\n"), False
        if not self._held or (self._may_repeat and self._open.startswith(self._held)):
            return False
        self._fresh = False
        return True

    def _show(self, thought: bytes, parts: list[Part], rest: bytes | None = None) -> None:
        self._held = self._held[len(thought) :] if rest is None else rest
        if thought:
            self._thought_shown = True
            parts.append((True, thought))

    def _leave(self) -> bool:
        self._held = self._held.lstrip(b"\n")
        if self._held:
            self._state = "answer"
        return bool(self._held)

    def _answer(self, parts: list[Part]) -> bool:
        held = self._held
        at = held.find(self._open) if self._again else -1
        kept = len(held) - (held_prefix(held, self._open) if self._again else 0) if at < 0 else at
        if kept:
            parts.append((False, held[:kept]))
        self._held = held[kept:]
        if at >= 0:
            self._enter(self._held[len(self._open) :], parts)
        return at >= 0


def held_prefix(data: bytes, mark: bytes) -> int:
    """Length of the longest proper beginning of `mark` that `data` ends with."""
    for length in range(min(len(mark) - 1, len(data)), 0, -1):
        if data.endswith(mark[:length]):
            return length
    return 0
