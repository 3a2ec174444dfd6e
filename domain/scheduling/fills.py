"""Whose prompt is read next, when several are being read. Knows no lane, clock or model.

Foreground before background, then the fewest ids left, so that a short prompt is not held up by a long one; but a
prompt that was passed over so many times takes its turn, so a flow of short ones holds nobody up for good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PATIENCE = 8


@dataclass(frozen=True, slots=True)
class Filling:
    """A prompt being read: an index of its own, lower for older ones, and what is left of it."""

    index: int
    left: int
    background: bool = False


class FillOrder:
    """Chooses one prompt at a time and remembers who was passed over.

    With `whole`, prompts are read one after another, each to its end, foreground first, in order of arrival.
    """

    def __init__(self, patience: int = PATIENCE, *, whole: bool = False) -> None:
        """Raises ValueError when nobody could ever be passed over."""
        if patience < 1:
            raise ValueError(f"a prompt cannot be passed over {patience} times")
        self._patience = patience
        self._whole = whole
        self._passed: dict[int, int] = {}

    def take(self, prompts: Sequence[Filling]) -> int:
        """The index of the prompt that is read next; one at least must be given."""
        if self._whole:
            return min(prompts, key=lambda p: (p.background, p.index)).index
        waited = {p.index: self._passed.get(p.index, 0) for p in prompts}
        # Those who waited too long stand in front, the longest wait first.
        late = {index: max(0, times - self._patience + 1) for index, times in waited.items()}
        chosen = min(prompts, key=lambda p: (-late[p.index], p.background, p.left, p.index))
        # Who is not there any more is forgotten.
        self._passed = {index: times + 1 for index, times in waited.items() if index != chosen.index}
        return chosen.index
