"""What a gate is: a rule that may end a reply, or put tokens of its own into it, decided token by token.

A gate reads only the tokens of the reply, so it cuts at the same token however the tokens were drafted or grouped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Finish(StrEnum):
    """Why a reply ended: at an end token or a stop string, or at its limit of tokens."""

    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a gate cuts a run of tokens.

    With `finish`, the token at `index` is the reply's last, and `stop` is the string that ended it, if one did.
    With `fix`, the token at `index` becomes `fix[0]` and the rest of `fix` follows it undrawn. One of the two is given.
    """

    index: int
    fix: tuple[int, ...] = ()
    finish: Finish | None = None
    stop: bytes | None = None


class Gate(Protocol):
    """One rule of one stream. It must let pass the tokens that it fixed itself."""

    def scan(self, tokens: Sequence[int]) -> Cut | None:
        """The first cut in tokens about to join the reply, as if they had been observed one by one. Changes nothing."""
        ...

    def observe(self, tokens: Sequence[int]) -> None:
        """Take note of tokens that joined the reply."""
        ...

    def room(self) -> int | None:
        """Tokens that may still come up to and with a cut that is known already, at least 1; None: no cut is known."""
        ...


def earliest_cut(gates: Sequence[Gate], tokens: Sequence[int]) -> Cut | None:
    """The first cut of any gate in a run. At one token an end goes before a fix, else the first gate's cut counts."""
    first: Cut | None = None
    for gate in gates:
        cut = gate.scan(tokens)
        if cut is not None and (first is None or _order(cut) < _order(first)):
            first = cut
    return first


def _order(cut: Cut) -> tuple[int, bool]:
    return cut.index, cut.finish is None
