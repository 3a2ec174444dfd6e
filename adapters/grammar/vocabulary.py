"""A checkpoint's tokenizer as the grammar library takes one: every id's bytes, as the reader of replies has them."""

from __future__ import annotations

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
        self.eos_token_id = min(end_ids)
        self.bos_token_id = None
        self.special_token_ids = sorted(special)
        self.tokens = [
            _SPECIAL + (piece or b"<%d>" % token) if token in special else bytes(piece)
            for token, piece in enumerate(known.table)
        ]

    def __call__(self, text: Any) -> list[int]:
        """Ids of a text, which the library asks for as bytes."""
        return self._tokenizer.encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
