"""In which spans a prompt is absorbed.

Chunk boundaries can move a prompt row's bits, so they follow from the prompt's ids alone: a fresh prompt and a resumed
one have the same plan. Spans are half-open, cover every position once and stand in order. The last id of a prompt is
never absorbed: it is pending when the first round begins.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.prompts.markers import NO_MARKERS, Markers

LEAST = 256
"""Ids that a chunk has at least, so that short messages do not make short chunks."""


def slices(span: tuple[int, int], slice_rows: int) -> Iterator[tuple[int, int]]:
    """`span` in pieces of at most `slice_rows` positions, in order; whole when `slice_rows` is 0.

    For a model whose bits do not depend on how a planned chunk is cut, so that rounds may run between the pieces.
    Raises ValueError when `slice_rows` is below 0.
    """
    start, stop = span
    return _grid(start, stop, slice_rows or max(stop - start, 1))


def _grid(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    if step < 1:
        raise ValueError(f"positions cannot be cut into pieces of {step}")
    return ((at, min(at + step, stop)) for at in range(start, stop, step))


@dataclass(frozen=True, slots=True)
class ChunkPlan:
    """The plan of one prompt: chunk `starts`, ascending from 0, over positions 0 .. `end`; none where `end` is 0.

    `shared` is the start behind the first message, where prompts with one system text part; 0 where no chunk begins
    there. `slice_rows` are those into which a chunk may be cut without changing bits; 0 when it runs whole.
    """

    starts: tuple[int, ...]
    end: int
    shared: int = 0
    slice_rows: int = 0

    def floor(self, position: int) -> int:
        """The last start at or before a position; 0 where there is none."""
        index = bisect_right(self.starts, position)
        return self.starts[index - 1] if index else 0

    def cuts_at(self, position: int) -> bool:
        """Whether absorbing may pause behind `position` ids: a chunk ends there, or a slice."""
        if not 0 < position <= self.end:
            return False
        into = position - self.floor(position)
        return position == self.end or into == 0 or (self.slice_rows > 0 and into % self.slice_rows == 0)

    def before(self, position: int) -> tuple[int, ...]:
        """The starts below a position: with the ids, what decides the bits of the state behind that many ids."""
        return self.starts[: bisect_left(self.starts, position)]

    def spans(self, resumed: int = 0) -> Iterator[tuple[int, int]]:
        """What is left to absorb behind `resumed` ids, a slice at a time. Raises ValueError where no cut is."""
        if resumed and not self.cuts_at(resumed):
            raise ValueError(f"the plan has no cut at {resumed}")
        for at, start in enumerate(self.starts):
            stop = self.starts[at + 1] if at + 1 < len(self.starts) else self.end
            if resumed < stop:
                yield from slices((max(start, resumed), stop), self.slice_rows)


@dataclass(frozen=True, slots=True)
class ChunkRule:
    """How prompts are planned: a chunk begins at the first message start that is `least` ids behind the last start,
    and after `step` ids at the latest. Raises ValueError for sizes that make no plan.
    """

    step: int = 2048
    markers: Markers = NO_MARKERS
    least: int = LEAST

    def __post_init__(self) -> None:
        if self.least < 1 or self.step < 1:
            raise ValueError(f"chunks cannot have {self.least} to {self.step} ids")
        if len(self.markers.assistant) > self._least:
            # A marker across a cut could otherwise move a cut before it.
            raise ValueError(f"a marker of {len(self.markers.assistant)} ids is longer than chunks of {self._least}")

    @property
    def name(self) -> str:
        """Everything that decides a plan, for the identity of kept states."""
        if not self.markers.found:
            return f"grid{self.step}"
        openers = ",".join(map(str, sorted(self.markers.openers)))
        assistant = ",".join(map(str, self.markers.assistant))
        return f"grid{self.step}+msg{self._least}:{openers}:{assistant}"

    @property
    def _least(self) -> int:
        return min(self.least, self.step)

    def plan(self, ids: Sequence[int] | NDArray[np.integer[Any]], slice_rows: int = 0) -> ChunkPlan:
        """The plan of a prompt."""
        known = np.asarray(ids, dtype=np.int64)
        end = max(0, len(known) - 1)
        if not end:
            return ChunkPlan((), 0, 0, slice_rows)
        points = self.markers.resume_points(known)
        starts = self._starts(points, end)
        shared = self.markers.second_message(known)
        return ChunkPlan(starts, end, shared if shared in starts else 0, slice_rows)

    def _starts(self, points: Sequence[int], end: int) -> tuple[int, ...]:
        starts = [0]
        while True:
            last = starts[-1]
            following = last + self.step
            at = bisect_left(points, last + self._least)
            if at < len(points):
                following = min(following, points[at])
            if following >= end:
                return tuple(starts)
            starts.append(following)
