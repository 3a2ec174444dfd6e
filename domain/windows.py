"""The rows a stream asks the target to verify in one round.

Row 0 is the pending token: committed to the reply, its state not yet absorbed. Behind it stand forced rows (fed, never
verified) and then drafts. A chain is a tree of one branch, so one type serves both. Knows nothing of models or lanes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Token ids with the row each one follows.

    `parents[0]` is -1; every other parent stands before its child. The first `forced` rows behind row 0 form a chain
    that is fed without being drawn: of rows 0 .. forced only the last is drawn, and drafts hang below it.
    Source: the window of the exact-decoding rules (docs/architecture.md, "A round").
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    forced: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def is_chain(self) -> bool:
        """Whether every row follows the row before it."""
        return self.parents == _chain_parents(len(self.parents))

    def depths(self) -> tuple[int, ...]:
        """Distance of each row from row 0; a row at depth d draws the token d + 1 places behind row 0's."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return tuple(depths)

    def path_to(self, row: int) -> tuple[int, ...]:
        """Rows from 0 to `row`, ancestors first."""
        path = [row]
        while (row := self.parents[row]) >= 0:
            path.append(row)
        return tuple(reversed(path))

    def truncated(self, rows: int) -> Window:
        """The first `rows` rows, at least the pending and forced ones; parents precede children, so it is whole."""
        rows = max(rows, 1 + self.forced)
        if rows >= len(self.tokens):
            return self
        return Window(self.tokens[:rows], self.parents[:rows], self.forced)


_CHAINS: list[tuple[int, ...]] = [tuple(range(-1, width - 1)) for width in range(65)]


def _chain_parents(width: int) -> tuple[int, ...]:
    return _CHAINS[width] if width < len(_CHAINS) else tuple(range(-1, width - 1))


def chain(pending: int, drafts: Sequence[int] = (), forced: Sequence[int] = ()) -> Window:
    """A window of one branch: the pending token, forced tokens, then drafts."""
    tokens = (pending, *forced, *drafts)
    return Window(tokens, _chain_parents(len(tokens)), len(forced))


def tree(pending: int, drafts: Sequence[int], parents: Sequence[int]) -> Window:
    """A window of several branches; `parents[i]` is the row (0 = pending, i + 1 = draft i) that draft i follows.

    Raises ValueError when a parent does not stand before its child.
    """
    if len(drafts) != len(parents):
        raise ValueError(f"{len(drafts)} drafts came with {len(parents)} parents")
    for row, parent in enumerate(parents, start=1):
        if not 0 <= parent < row:
            raise ValueError(f"draft row {row} follows row {parent}, which does not stand before it")
    return Window((pending, *drafts), (-1, *parents))
