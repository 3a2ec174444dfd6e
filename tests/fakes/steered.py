"""A hash model that comes to an end under a grammar: what closes a text, a list or a call is likelier than the rest.

The reply is still a hash of everything absorbed; only fixed weights of single tokens are added to its logits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.conversation.token_bytes import TokenBytes
from tests.fakes.hash_law import HashLaw
from tests.fakes.tokenizer import FakeTokenizer

PIECES = (
    *(' "', '": ', '", "', '"}', '"}\n', '": "', "true", "null", "{}", "[]", "</", "<f", "\n<", "ab", "xyz "),
    *("<tool_call>", "</tool_call>", "\n<function=", ">\n", "\n</parameter>\n", "</function>\n", "<parameter="),
    *("</think>", "<think>", "</arg_value>", '<|"|>', "<tool_call|>"),
)
_WEIGHTS = {
    '"': 5.0, "]": 6.0, "}": 6.0, "\n</parameter>\n": 5.0, "</function>\n": 5.0, "</arg_value>": 6.0, '<|"|>': 6.0,
    "</tool_call>": 4.0, "<tool_call|>": 4.0, "</think>": 2.0, " ": -6.0, "\n": -4.0, "\t": -8.0, "\r": -8.0, "[": -2.0,
    "{": -2.0, "\\": -4.0, ",": -1.0, "1": 2.0, ".": -2.0, "e": -1.0, "E": -2.0, "-": -2.0, "0": -1.0,
}  # fmt: skip
_END = 9.0


class PieceTokenizer(FakeTokenizer):
    """The fake tokenizer with `pieces` of several characters, which it never makes of a text, as ids before the last.

    `specials` are special tokens, the end token behind them.
    """

    def __init__(self, pieces: Sequence[str] = PIECES, specials: Sequence[str] = ()) -> None:
        own = [piece for piece in pieces if piece not in specials]
        super().__init__(256 + len(own) + len(specials) + 1, (*specials, "<|end|>"))
        self._table = (*self._table[:256], *(piece.encode() for piece in own), *self._table[256 + len(own) :])
        self._bytes = TokenBytes(self._table, self._bytes.special)


class SteeredLaw(HashLaw):
    """A law with weights added to single ids."""

    weights: NDArray[np.float32]

    def logits(self, states: NDArray[np.uint64], tokens: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """The law's rows, steered."""
        return super().logits(states, tokens) + self.weights


def steered(tokenizer: FakeTokenizer, salt: int, weights: Mapping[str, float] | None = None) -> SteeredLaw:
    """A law over a tokenizer's ids that ends replies where it may; `weights` by piece go before the usual ones."""
    law = SteeredLaw(vocabulary=tokenizer.vocabulary, salt=salt, tie_share=0.1)
    row = np.zeros(tokenizer.vocabulary, dtype=np.float32)
    for piece, weight in {**_WEIGHTS, **(weights or {})}.items():
        token = tokenizer.token_id(piece)
        if token is not None:
            row[token] = weight
    row[tokenizer.end_id] = _END
    object.__setattr__(law, "weights", row)
    return law
