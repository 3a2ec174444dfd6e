"""Which drafts of a window stand: those equal to the target's own draws, one after another along one path.

Equality is the whole rule, so a drafted reply is the serial reply whatever was drafted. A device may follow the same
rule ahead of the host; the host's answer is this one. Knows no model and changes no stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.domain.windows import Window


@dataclass(frozen=True, slots=True)
class Acceptance:
    """`path`: row 0, the forced rows, the rows of drafts that stand. `tokens`: those drafts and the last row's draw."""

    path: tuple[int, ...]
    tokens: tuple[int, ...]


def accept(window: Window, draws: Sequence[int], room: int, stops: frozenset[int]) -> Acceptance:
    """Follow the target's draws down the window.

    `draws[r]` is the token that row r drew, at the position behind it; rows before the last forced one are not read.
    The path ends at a draw that no row carries, at a token of `stops`, and when the window's forced tokens and
    `Acceptance.tokens` together fill `room`. Of sibling rows with one token the first counts. At least one token comes
    back, however small the room. One pass: parents stand before their children.
    """
    row = window.forced
    token = draws[row]
    tokens = window.tokens
    if row + 1 == len(tokens) or row + 1 >= room or token in stops:
        return Acceptance(tuple(range(row + 1)) if row else _ROOT, (token,))
    parents = window.parents
    path = list(range(row + 1))
    landed = []
    for child in range(row + 1, len(tokens)):
        if tokens[child] == token and parents[child] == row:
            path.append(child)
            landed.append(token)
            row = child
            token = draws[row]
            if len(path) >= room or token in stops:
                break
    landed.append(token)
    return Acceptance(tuple(path), tuple(landed))


_ROOT = (0,)
