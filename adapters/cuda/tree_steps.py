"""The order in which the rows of a tree make their recurrent steps, so that few states have to be made twice.

A lane has one place besides its committed state. A row with several children writes its state there, smaller branches
come first, and each next child starts from what was written. Where a branch inside has overwritten it, the way down is
run again from the committed state. Knows rows and parents alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from tensorfold.adapters.cuda.rows import RESET, RETURN, SAVE


def tree_steps(parents: Sequence[int]) -> list[tuple[int, bool, int]]:
    """Steps (row, whether the row's result is new, flags) of rows with these parents, -1 for the first.

    A row's step follows its parent's, or starts where that one's state lies. Parents stand before their children.
    """
    return _Walk(parents).steps


class _Walk:
    def __init__(self, parents: Sequence[int]) -> None:
        self._parents = parents
        size = [1] * len(parents)
        for row in range(len(parents) - 1, 0, -1):
            size[parents[row]] += size[row]
        self._children: list[list[int]] = [[] for _ in parents]
        for row in range(1, len(parents)):
            self._children[parents[row]].append(row)
        for children in self._children:
            children.sort(key=size.__getitem__)
        self.steps: list[tuple[int, bool, int]] = []
        self._aside = -1
        left = [(0, -1)]
        while left:
            row, parent = left.pop()
            self._make(row, parent)
            left += [(child, row) for child in reversed(self._children[row])]

    def _make(self, row: int, parent: int) -> None:
        flags = 0
        if self.steps and self.steps[-1][0] != parent:
            flags = self._back_to(parent)
        self._step(row, True, flags, to_come=len(self._children[row]))

    def _back_to(self, row: int) -> int:
        """Flags of the step that follows `row`, whose state was left; the way down to it again where that is needed."""
        if row == self._aside:
            return RETURN
        way = [row]
        while (parent := self._parents[way[0]]) >= 0:
            way.insert(0, parent)
        done = {made for made, new, _ in self.steps if new}
        for at, old in enumerate(way):
            rest = sum(child not in done for child in self._children[old]) if old == row else 0
            self._step(old, False, 0 if at else RESET, to_come=rest)
        return 0

    def _step(self, row: int, new: bool, flags: int, to_come: int) -> None:
        if to_come > 1:
            flags, self._aside = flags | SAVE, row
        self.steps.append((row, new, flags))
