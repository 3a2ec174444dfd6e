"""Byte-level BPE by its definition, in plain Python: what a GGUF file's own rules make of a text.

Text between added tokens is cut by the pre-tokenizer, each piece spelled in the byte alphabet, and the two neighbours
of lowest merge rank (the leftmost of equals) are joined until none is left. A symbol without a token is dropped.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tests.adapters.packages.gguf_samples import alphabet

_SPACES = {*"\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000", *map(chr, range(0x2000, 0x200B))}
_ENDINGS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
_ALPHABET = alphabet()


class ReferenceTokenizer:
    """Ids of texts; `added` are the tokens matched before anything else."""

    def __init__(self, tokens: Sequence[str], merges: Sequence[str], added: Sequence[str], single_digits: bool) -> None:
        self._ids = {token: index for index, token in enumerate(tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self._added = sorted(added, key=len, reverse=True)
        self._single_digits = single_digits

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        ids: list[int] = []
        start = position = 0
        while position < len(text):
            found = next((token for token in self._added if text.startswith(token, position)), None)
            if found is None:
                position += 1
                continue
            ids += [*self._encode_plain(text[start:position]), self._ids[found]]
            start = position = position + len(found)
        return ids + self._encode_plain(text[start:])

    def _encode_plain(self, text: str) -> list[int]:
        pieces = [piece for part in self._parts(text) for piece in _pieces(part)]
        return [self._ids[symbol] for piece in pieces for symbol in self._merged(piece) if symbol in self._ids]

    def _parts(self, text: str) -> Iterator[str]:
        if not self._single_digits:
            yield text
            return
        start = 0
        for index, character in enumerate(text):
            if unicodedata.category(character)[0] == "N":
                yield text[start:index]
                yield character
                start = index + 1
        yield text[start:]

    def _merged(self, piece: str) -> list[str]:
        symbols = [_ALPHABET[byte] for byte in piece.encode()]
        while len(symbols) > 1:
            pairs = list(pairwise(symbols))
            best = min(range(len(pairs)), key=lambda at: (self._ranks.get(pairs[at], len(self._ranks)), at))
            if pairs[best] not in self._ranks:
                break
            symbols[best : best + 2] = ["".join(pairs[best])]
        return symbols


def _kind(character: str) -> str:
    if character in _SPACES:
        return "space"
    major = unicodedata.category(character)[0]
    return major if major in "LN" else "other"


def _pieces(text: str) -> Iterator[str]:
    """The pieces of GPT-2's pattern."""
    start = 0
    while start < len(text):
        end = _piece_end(text, start)
        yield text[start:end]
        start = end


def _piece_end(text: str, start: int) -> int:
    for ending in _ENDINGS:
        if text.startswith(ending, start):
            return start + len(ending)
    first = start + 1 if text[start] == " " and start + 1 < len(text) else start
    kind = _kind(text[first])
    if kind != "space":
        return _run_end(text, first, kind)
    end = _run_end(text, start, "space")
    # Blanks before a word leave it their last one.
    return end if end == len(text) or end == start + 1 else end - 1


def _run_end(text: str, start: int, kind: str) -> int:
    while start < len(text) and _kind(text[start]) == kind:
        start += 1
    return start
