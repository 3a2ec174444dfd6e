"""Which whole pages of keys a lane shares with kept prompt ends: bookkeeping of numbers, as a device shares them.

A lane that goes on from a kept end reads its whole pages; what either writes later lies in pages of its own. Pages have
numbers of this book alone. Knows no device and no bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

Pages = tuple[int, ...]


class PageBook:
    """Numbers for pages of `positions` tokens."""

    def __init__(self, positions: int) -> None:
        self._positions = positions
        self._numbers = itertools.count()

    def behind(self, pages: Pages, length: int) -> Pages:
        """The whole pages behind `length` tokens of a lane whose first pages are these; new ones have new numbers."""
        whole = length // self._positions
        return pages[:whole] + tuple(next(self._numbers) for _ in range(whole - len(pages)))


def distinct(held: Iterable[Pages], but: Iterable[Pages] = ()) -> int:
    """How many pages are among those of `held` and not among those of `but`."""
    return len(set(itertools.chain.from_iterable(held)) - set(itertools.chain.from_iterable(but)))
