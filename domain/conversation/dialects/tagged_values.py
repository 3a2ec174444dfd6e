"""Values between tags: raw text that goes on until a closing tag stands where only the next parameter or the call's end
can follow. A closing tag anywhere else is part of the value, so that text about markup survives.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from dataclasses import dataclass

from tensorfold.domain.conversation.argument_values import escaped, quoted, typed
from tensorfold.domain.conversation.dialects.dialect import Cut, Piece, Reading, Source
from tensorfold.domain.conversation.offered_tools import STRING, Tool


@dataclass(frozen=True, slots=True)
class ValueTags:
    """How values end. `end` matches the end of a value: its group `next` where another parameter follows, up to that
    one's tag, else the end of the last value with the end of its call. One pattern, so that a search never reads beyond
    the value. `cut` matches the latter where the reply ends before the call's last mark is whole, `maybe` any beginning
    of these at the end of a text. `line` says that a value stands on lines of its own: the first line break is no part
    of it (the one at its end belongs to the patterns).
    """

    end: re.Pattern[str]
    cut: re.Pattern[str]
    maybe: re.Pattern[str]
    line: bool


class _Chunks:
    """The text of one value as it arrives. `last` then says whether it was the call's last value."""

    def __init__(self, source: Source, tags: ValueTags) -> None:
        self._source = source
        self._tags = tags
        self.last = False

    def __iter__(self) -> Generator[str | None, None, None]:
        """Pieces of the value; None asks for more text. Raises Cut when the reply ends inside the value."""
        source, tags = self._source, self._tags
        if tags.line:
            while source.at == len(source.text) and not source.ended:
                yield None
            source.at += source.text.startswith("\n", source.at)
        while (end := self._end()) is None:
            held = tags.maybe.search(source.text, source.at)
            certain = held.start() if held is not None and not source.ended else len(source.text)
            if certain > source.at:
                at, source.at = source.at, certain
                yield source.text[at:certain]
            if source.ended:
                raise Cut
            yield None
        at, source.at = source.at, end.end()
        if end.start() > at:
            yield source.text[at : end.start()]

    def _end(self) -> re.Match[str] | None:
        source, tags = self._source, self._tags
        end = tags.end.search(source.text, source.at)
        if end is not None:
            self.last = end["next"] is None
        elif source.ended and (end := tags.cut.search(source.text, source.at)) is not None:
            self.last = True
        return end


def value(source: Source, tags: ValueTags, tool: Tool, key: str, first: bool) -> Reading[bool]:
    """Read one parameter's value, its key before it; whether it was the last of the call. Strings come in pieces."""
    before = f"{'{' if first else ','}{quoted(key)}:"
    chunks, types = _Chunks(source, tags), tool.types(key)
    if types == STRING:
        yield Piece(before + '"')
        for chunk in chunks:
            yield None if chunk is None else Piece(escaped(chunk))
        yield Piece('"')
    else:
        yield Piece(before)
        text = ""
        try:
            for chunk in chunks:
                if chunk is None:
                    yield None
                else:
                    text += chunk
        except Cut:
            # The reply ends here. What was written is not lost, though it has no type yet.
            yield Piece(text)
            raise
        yield Piece(typed(text, types))
    if chunks.last:
        yield Piece("}")
    return chunks.last
