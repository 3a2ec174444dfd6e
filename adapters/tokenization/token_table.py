"""The bytes of every id, worked out when an id is first asked for: a vocabulary of 150,000 costs nothing to load.

Safe to read from several threads: a value computed twice is the same value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload


class TokenTable(Sequence[bytes]):
    """`table[id]` is the bytes of the id's text; an id without a token has none."""

    __slots__ = ("_bytes", "_to_bytes", "_tokens")

    def __init__(self, tokens: Sequence[str | None], to_bytes: Callable[[str], bytes]) -> None:
        self._tokens = tokens
        self._to_bytes = to_bytes
        self._bytes: list[bytes | None] = [None] * len(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[bytes, ...]: ...
    def __getitem__(self, index: int | slice) -> bytes | tuple[bytes, ...]:
        if isinstance(index, slice):
            return tuple(self._of(token) for token in range(*index.indices(len(self))))
        return self._of(index)

    def _of(self, token: int) -> bytes:
        known = self._bytes[token]
        if known is None:
            text = self._tokens[token]
            known = self._bytes[token] = b"" if text is None else self._to_bytes(text)
        return known
