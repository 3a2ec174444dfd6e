"""Walks one large JSON object of a hostile file without holding it: keys and values come one by one.

Each value may take a bounded number of bytes, so what a file can make its reader hold does not grow with the file.
Knows nothing of tensors; the caller says what each key means. Raises RefusedError for text that is not such an object.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from tensorfold.adapters.filesystem.checkpoint_json import JsonFaultError, strict_decoder
from tensorfold.adapters.filesystem.checkpoint_limits import quoted
from tensorfold.application.ports.checkpoints import RefusedError

_CHUNK = 1 << 16
_BRACKETS = 64
_BLANKS = " \t\n\r"
_SPACE = re.compile(f"[{_BLANKS}]*")


class JsonStream:
    """One JSON object of `source`, which returns at most n bytes and b"" at the end; `label` begins sentences."""

    def __init__(self, source: Callable[[int], bytes], label: str) -> None:
        self._source = source
        self._label = label
        self._decoder = strict_decoder()
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._text = ""
        self._at = 0
        self._is_ended = False

    def members(self, key_bytes: int) -> Iterator[str]:
        """The keys of the object that begins here; the caller takes each key's value before asking for the next."""
        self._take("{")
        first = True
        while self._peek() != "}":
            if not first:
                self._take(",")
            first = False
            key = self.string(key_bytes)
            self._take(":")
            yield key
        self._take("}")

    def string(self, limit: int) -> str:
        """The string that begins here. Raises RefusedError when something else does."""
        if self._peek() != '"':
            raise self._malformed()
        return str(self.value(limit))

    def is_null(self) -> bool:
        """Whether the next value is null; it is taken when it is."""
        return self._peek() == "n" and self.value(8) is None

    def value(self, limit: int) -> Any:
        """The value that begins here, of at most `limit` characters."""
        self._peek()
        self._fill(limit + 1)
        try:
            value, end = self._decoder.raw_decode(self._text, self._at)
        except JsonFaultError as fault:
            raise RefusedError(f"{self._label} {fault}.") from None
        except (json.JSONDecodeError, RecursionError, ValueError):
            raise self._malformed(limit) from None
        # What a sentence shows is printed recursively, so a value that comes back is never deep.
        brackets = self._text.count("[", self._at, end) + self._text.count("{", self._at, end)
        if end - self._at > limit or (brackets > _BRACKETS and not isinstance(value, str)):
            raise self._malformed(limit)
        self._at = end
        return value

    def finish(self) -> None:
        """Require that nothing but blanks follows."""
        if self._peek():
            raise RefusedError(f"{self._label} has {quoted(self._peek())} behind its JSON object.")

    def _peek(self) -> str:
        """The next character that is not a blank, left in place; empty at the end."""
        mark = self._text[self._at : self._at + 1]
        if mark and mark not in _BLANKS:
            return mark
        while True:
            blanks = _SPACE.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text) or self._is_ended:
                return self._text[self._at : self._at + 1]
            self._fill(1)

    def _take(self, mark: str) -> None:
        if self._peek() != mark:
            raise self._malformed()
        self._at += 1

    def _fill(self, characters: int) -> None:
        """Hold `characters` from here on, or all that is left."""
        while len(self._text) - self._at < characters and not self._is_ended:
            data = self._source(_CHUNK)
            self._is_ended = not data
            try:
                more = self._utf8.decode(data, final=self._is_ended)
            except UnicodeDecodeError:
                raise RefusedError(f"{self._label} is not UTF-8 text.") from None
            self._text = self._text[self._at :] + more
            self._at = 0

    def _malformed(self, limit: int = 0) -> RefusedError:
        near = self._text[self._at : self._at + 24]
        bound = f", or has a value of more than {limit} characters" if limit else ""
        place = f"near {quoted(near)}" if near else "where it ends"
        return RefusedError(f"{self._label} is not a valid JSON object{bound}, {place}.")
