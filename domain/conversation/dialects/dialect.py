"""What a dialect is: it reads one call from a text that is still arriving, as a generator that asks for more text.

A dialect knows nothing of streams, ids or channels. It yields what is certain of the call and returns at its end; a
text that is no call of an offered tool raises Broken, and is then shown as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tensorfold.domain.conversation.offered_tools import OfferedTools, Tool


class Broken(Exception):  # noqa: N818 - it says what the text is
    """The text is no call, or ends inside one."""


class Cut(Broken):
    """The text ends inside what may have become a call."""


@dataclass(frozen=True, slots=True)
class Begin:
    """The call is certain to be one of this tool, and all that follows is its arguments."""

    name: str


@dataclass(frozen=True, slots=True)
class Piece:
    """The next part of the arguments' JSON."""

    json: str


Step = Begin | Piece | None
"""None asks for more text."""

T = TypeVar("T")
Reading = Generator[Step, None, T]


class Source:
    """The text of a reply and the place up to which it was read."""

    __slots__ = ("at", "ended", "text")

    def __init__(self) -> None:
        self.text = ""
        self.at = 0
        self.ended = False

    def more(self) -> Reading[None]:
        """Wait for more text. Raises Cut when there is none."""
        if self.ended:
            raise Cut
        yield None

    def blank(self) -> Reading[None]:
        """Read past blanks and wait for what follows them; the end of the text is fine."""
        while True:
            while self.at < len(self.text) and self.text[self.at] in " \t\r\n":
                self.at += 1
            if self.at < len(self.text) or self.ended:
                return
            yield from self.more()

    def one_of(self, *marks: str) -> Reading[str]:
        """Read the mark that stands here. Raises Broken when it is none of them."""
        while True:
            for mark in marks:
                if self.text.startswith(mark, self.at):
                    self.at += len(mark)
                    return mark
            rest = self.text[self.at : self.at + max(map(len, marks))]
            if not any(mark.startswith(rest) for mark in marks):
                raise Broken
            yield from self.more()

    def ahead(self, mark: str) -> Reading[bool]:
        """Whether a mark stands here; it is not read."""
        while True:
            rest = self.text[self.at : self.at + len(mark)]
            if rest == mark or not mark.startswith(rest) or self.ended:
                return rest == mark
            yield from self.more()

    def until(self, mark: str, most: int | None = None) -> Reading[str]:
        """Read the text before a mark, and the mark. Raises Broken when `most` characters come without it."""
        seen = self.at
        while (found := self.text.find(mark, seen)) < 0:
            if most is not None and len(self.text) - self.at >= most + len(mark):
                raise Broken
            seen = max(self.at, len(self.text) - len(mark) + 1)
            yield from self.more()
        text, self.at = self.text[self.at : found], found + len(mark)
        if most is not None and len(text) > most:
            raise Broken
        return text

    def closing(self, mark: str) -> Reading[None]:
        """Read the mark that closes a whole call, blanks before it; a reply may end before it or inside it."""
        yield from self.blank()
        rest = self.text[self.at :]
        while not rest.startswith(mark):
            if not mark.startswith(rest):
                raise Broken
            if self.ended:
                self.at = len(self.text)
                return
            yield from self.more()
            rest = self.text[self.at :]
        self.at += len(mark)


class CallDialect(Protocol):
    """One way to write a call. Stateless."""

    @property
    def name(self) -> str:
        """What plans call it."""
        ...

    @property
    def opener(self) -> str:
        """The mark in front of a call."""
        ...

    @property
    def bare_opener(self) -> str:
        """How a call may begin at an answer's start without its mark; empty: it may not."""
        ...

    @property
    def marks(self) -> tuple[str, ...]:
        """Marks that may be tokens of their own, special ones among them."""
        ...

    def read(self, source: Source, tools: OfferedTools) -> Reading[None]:
        """Read one call, its opener behind us (a bare one ahead). Once it began, only the text's end may break it."""
        ...

    def shows(self, text: str, tool: str) -> bool:
        """Whether a rendered conversation holds a call of `tool` in this dialect."""
        ...


def offered(tools: OfferedTools, name: str) -> Tool:
    """The tool of that name. Raises Broken when it is not offered."""
    tool = tools.get(name)
    if tool is None:
        raise Broken
    return tool


def whole(name: str, arguments: str) -> Reading[None]:
    """A call whose arguments are known at once."""
    yield Begin(name)
    yield Piece(arguments)


MOST_KEY = 1024
"""The longest name of a parameter, in characters."""


def key_of(text: str) -> str:
    """A parameter's name as it stands between marks. Raises Broken for an empty one or one that holds markup."""
    name = text.strip()
    if not name or re.search(r"[<>\n]", name):
        raise Broken
    return name
