"""Text with tool calls in it, as it arrives: what is text goes on as text, what is a call becomes one.

However the text is cut, the same comes out. Markup that is no call of an offered tool is text as it was written. Blanks
around a call are layout: they stay only between two pieces of text.
"""

from __future__ import annotations

from dataclasses import dataclass

from tensorfold.domain.conversation.dialects.dialect import Begin, Broken, CallDialect, Cut, Piece, Reading, Source
from tensorfold.domain.conversation.offered_tools import OfferedTools

_BLANK = " \t\r\n"
_MOST_CUT = 8
"""Calls that the text's end may cut before further openers are taken for text: each is read to the end once more, so a
text of nothing but openers would cost its square.
"""


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """Call number `index` of the reply, from 0."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of a call's arguments, JSON."""

    index: int
    json: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call is whole. A reply may end without this: its last call was cut, and so are its arguments."""

    index: int


CallEvent = Said | CallBegin | CallArguments | CallEnd


class CallCount:
    """Calls of one reply, which may come from its thought and from its answer."""

    __slots__ = ("begun", "most", "whole")

    def __init__(self, most: int | None = None) -> None:
        self.begun = 0
        self.whole = 0
        self.most = most


class CallReader:
    """Reads one text. `live` passes a call on while it is written, else each comes when it is whole.

    Of calls beyond the count's `most` nothing is passed on. Linear in the text but for copies of the part it holds.
    """

    __slots__ = (
        "_after_call",
        "_blanks",
        "_call",
        "_count",
        "_cuts",
        "_dialect",
        "_live",
        "_said",
        "_source",
        "_start",
        "_tools",
    )

    def __init__(self, dialect: CallDialect, tools: OfferedTools, count: CallCount, *, live: bool) -> None:
        self._dialect = dialect
        self._tools = tools
        self._count = count
        self._live = live
        self._source = Source()
        self._call: _Call | None = None
        self._start = 0
        self._cuts = 0
        self._said = False
        self._after_call = False
        self._blanks = ""

    def feed(self, text: str) -> list[CallEvent]:
        """What this text makes certain."""
        self._source.text += text
        return self._run()

    def finish(self) -> list[CallEvent]:
        """What is still held, when no more text comes."""
        self._source.ended = True
        events = self._run()
        if self._blanks and not self._after_call:
            events.append(Said(self._blanks))
        self._blanks = ""
        return events

    def _run(self) -> list[CallEvent]:
        events: list[CallEvent] = []
        while self._call is not None or self._open(events):
            assert self._call is not None
            if not self._advance(self._call, events):
                break
        return events

    # -- text ----------------------------------------------------------------------------------------------------

    def _open(self, events: list[CallEvent]) -> bool:
        """Pass on the text before the next call; whether there is one."""
        source, dialect = self._source, self._dialect
        text = source.text[source.at :]
        at, length = text.find(dialect.opener), len(dialect.opener)
        bare = self._bare(text)
        if self._cuts > _MOST_CUT:
            at, bare = -1, None
        if bare is not None and (at < 0 or bare < at):
            at, length = bare, 0
        certain = at if at >= 0 else len(text) if source.ended else self._certain(text)
        self._say(text[:certain], events)
        # What has been passed on is forgotten.
        source.text, source.at = text[certain:], 0
        if at < 0:
            return False
        source.at = length
        most = self._count.most
        self._call = _Call(dialect.read(source, self._tools), self._live and most is None)
        self._start = max(length, len(dialect.bare_opener) if not length else 0)
        return True

    def _bare(self, text: str) -> int | None:
        """Where a call begins without its mark: only where nothing was said since the start or the last call."""
        bare = self._dialect.bare_opener
        if not bare or not self._may_be_bare:
            return None
        body = text.lstrip(_BLANK)
        return len(text) - len(body) if body.startswith(bare) else None

    @property
    def _may_be_bare(self) -> bool:
        return self._after_call or not self._said

    def _certain(self, text: str) -> int:
        """Characters in front of what may become an opener."""
        body = text.lstrip(_BLANK)
        if self._dialect.bare_opener and self._may_be_bare and self._dialect.bare_opener.startswith(body):
            return 0
        opener = self._dialect.opener
        for length in range(min(len(opener) - 1, len(text)), 0, -1):
            if text.endswith(opener[:length]):
                return len(text) - length
        return len(text)

    def _say(self, text: str, events: list[CallEvent]) -> None:
        body = text.rstrip(_BLANK)
        if not body:
            self._blanks += text
            return
        blanks, self._blanks = self._blanks, text[len(body) :]
        text = blanks + body
        if self._after_call and not self._said:
            text = text.lstrip(_BLANK)
        self._said, self._after_call = True, False
        events.append(Said(text))

    # -- calls ---------------------------------------------------------------------------------------------------

    def _advance(self, call: _Call, events: list[CallEvent]) -> bool:
        """Read on in the call; whether it is over, one way or the other."""
        count = self._count
        try:
            for step in call.reading:
                if step is None:
                    return False
                call.held.append(step)
                if call.live:
                    self._pass_on(call, events)
        except Broken as broken:
            self._call = None
            self._cuts += isinstance(broken, Cut)
            if call.begun:
                self._after_call = True
            else:
                # The opener was text; what stands behind it is looked at anew.
                self._source.at = self._start
                self._say(self._source.text[: self._start], events)
            return True
        self._call = None
        if count.most is None or count.whole < count.most:
            self._pass_on(call, events)
            events.append(CallEnd(count.begun - 1))
            count.whole += 1
        self._after_call = True
        return True

    def _pass_on(self, call: _Call, events: list[CallEvent]) -> None:
        for step in call.held:
            if isinstance(step, Begin):
                events.append(CallBegin(self._count.begun, step.name))
                self._count.begun += 1
                call.begun = True
            elif step.json:
                events.append(CallArguments(self._count.begun - 1, step.json))
        call.held.clear()


class _Call:
    """A call that is being read, and what of it was not passed on yet."""

    __slots__ = ("begun", "held", "live", "reading")

    def __init__(self, reading: Reading[None], live: bool) -> None:
        self.reading = reading
        self.live = live
        self.begun = False
        self.held: list[Begin | Piece] = []
