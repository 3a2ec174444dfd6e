"""The bytes of each token id and the rule that joins them into text. Values only; a tokenizer adapter fills them in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

JoinRule = Literal["concat", "strip_first_space"]


@dataclass(frozen=True, slots=True)
class TokenBytes:
    """`table[id]` holds the raw bytes of an id, as they stand in the middle of a text.

    `special` ids show no text in a reply. `rule` "concat" joins bytes as they are (byte-level BPE);
    "strip_first_space" drops one leading space of a text that starts with one (SentencePiece).
    """

    table: Sequence[bytes]
    special: frozenset[int] = field(default=frozenset())
    rule: JoinRule = "concat"

    def of(self, token: int) -> bytes:
        """Bytes that `token` adds to shown text: empty for special ids and ids past the table."""
        if token in self.special or not 0 <= token < len(self.table):
            return b""
        return self.table[token]

    def shown(self, token: int, begun: bool) -> tuple[bytes, bool]:
        """Bytes that `token` adds to a text, and whether that has now begun: whether some token of it had bytes."""
        data = self.of(token)
        if begun or not data:
            return data, begun
        return data[1:] if self.rule == "strip_first_space" and data.startswith(b" ") else data, True
