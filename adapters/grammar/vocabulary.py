"""A checkpoint's tokenizer as the grammar library takes one: every id's bytes, as the reader of replies has them."""

from __future__ import annotations

import re
from typing import Any

from tensorfold.application.ports.tokenizer import Tokenizer

_SPECIAL = b"\xff"
"""In front of a special token's name: bytes that no text has."""


class Vocabulary:
    """What the library reads from a tokenizer; attribute names are the library's."""

    def __init__(self, tokenizer: Tokenizer, end_ids: frozenset[int]) -> None:
        known = tokenizer.token_bytes
        special = known.special | end_ids
        self._tokenizer = tokenizer
        self._cuts = _starts([bytes(known.table[token]) for token in special if token < len(known.table)])
        self.eos_token_id = min(end_ids)
        self.bos_token_id = None
        self.special_token_ids = sorted(special)
        self.tokens = [
            _SPECIAL + (piece or b"<%d>" % token) if token in special else bytes(piece)
            for token, piece in enumerate(known.table)
        ]

    def __call__(self, text: Any) -> list[int]:
        """Ids of a text, which the library asks for as bytes: ordinary ones, also where it spells a special token.

        What a grammar forces is text. A token's name in it, written with the token itself, would be another reply.
        """
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        at, ids = 0, list[int]()
        for start in self._cuts.finditer(text) if self._cuts is not None else ():
            ids += self._tokenizer.encode(text[at : start.end() + 1])
            at = start.end() + 1
        return ids + self._tokenizer.encode(text[at:])


def _starts(names: list[bytes]) -> re.Pattern[str] | None:
    """Where in a text a special token's name begins; names of one character cannot be written otherwise."""
    texts = sorted({text for name in names if len(text := name.decode("utf-8", "replace")) > 1})
    return re.compile(f"(?={'|'.join(map(re.escape, texts))})") if texts else None
