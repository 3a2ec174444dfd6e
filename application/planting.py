"""An oracle that knows a stream's serial reply and plants right and wrong drafts, so that a proof sees every window.

It is a draft source like any other: verification is untouched. It counts what became of its drafts, at which lengths
windows were partly kept, and whether a reply ever stopped inside a run of right drafts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tensorfold.domain.drafting.sources import Proposal

Shape = Literal["chain", "tree"]
NAME = "oracle"


@dataclass(slots=True)
class Tally:
    """What a proof's mode saw. `partial[k]` counts windows of which exactly k drafts were kept."""

    partial: dict[int, int] = field(default_factory=dict)
    stops_inside: int = 0

    def saw(self, kept: int) -> None:
        """Count one verified window."""
        self.partial[kept] = self.partial.get(kept, 0) + 1

    def missing(self, widest: int) -> tuple[int, ...]:
        """Kept lengths from 0 to `widest` that no window had."""
        return tuple(k for k in range(widest + 1) if not self.partial.get(k))


class PlantedDrafts:
    """Draft source of one stream.

    `reply` is the serial reply's ids; `lengths` yields how many drafts of each window should be right, of at most
    `most` in all; every `rest`-th round it stays silent so that the stream's other sources are verified too (0: never).
    """

    name = NAME

    def __init__(
        self,
        prompt: int,
        reply: Sequence[int],
        lengths: Iterator[int],
        shape: Shape,
        vocabulary: int,
        tally: Tally,
        rest: int = 0,
        most: int = 1 << 30,
    ) -> None:
        self._prompt = prompt
        self._reply = tuple(reply)
        self._lengths = lengths
        self._shape = shape
        self._vocabulary = vocabulary
        self._tally = tally
        self._rest = rest
        self._most = most
        self._round = 0
        self._right = 0
        self._at = 0

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """`limit` drafts: the wanted number of right ones, the others wrong."""
        self._round += 1
        limit = min(limit, self._most)
        at = len(tokens) - self._prompt
        known = len(self._reply) - at
        if limit <= 0 or known <= 0 or (self._rest and self._round % self._rest == 0):
            self._right = 0
            return None
        self._at = at
        self._right = min(next(self._lengths), limit, known)
        right = self._reply[at : at + self._right]
        if self._shape == "tree":
            return self._tree(right, limit)
        wrong = tuple(self._other(at + self._right + i) for i in range(limit - self._right))
        return Proposal(NAME, right + wrong, (1.0,) * limit)

    def _tree(self, right: tuple[int, ...], limit: int) -> Proposal:
        """The right branch between wrong siblings, which hang off right nodes before and after the right child."""
        spare = limit - len(right)
        tokens: list[int] = []
        parents: list[int] = []
        row = 0
        for depth in range(len(right) + 1):
            last = depth == len(right)
            wrongs = spare if last else min(spare, 1 if depth % 2 else 2)
            spare -= wrongs
            early = 0 if last else wrongs - wrongs // 2
            for i in range(early):
                tokens.append(self._other(self._at + depth, i))
                parents.append(row)
            if not last:
                tokens.append(right[depth])
                parents.append(row)
                after = len(tokens)
                for i in range(early, wrongs):
                    tokens.append(self._other(self._at + depth, i))
                    parents.append(row)
                row = after
            else:
                self._deaden(tokens, parents, row, wrongs)
        return Proposal(NAME, tuple(tokens), (1.0,) * len(tokens), tuple(parents))

    def _deaden(self, tokens: list[int], parents: list[int], row: int, count: int) -> None:
        """What is left of the window behind the last right node: a wrong branch that runs on."""
        for i in range(count):
            tokens.append(self._other(self._at + self._right + i))
            parents.append(row)
            row = len(tokens)

    def _other(self, at: int, shift: int = 0) -> int:
        """An id that is not the serial one at reply index `at`."""
        true = self._reply[at] if at < len(self._reply) else 0
        return (true + 1 + shift) % self._vocabulary

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Count the window if it was this source's."""
        if source != NAME or not drafted:
            return
        self._tally.saw(kept)
        ended = len(tokens) - self._prompt - self._at
        if 1 < ended <= self._right:
            # Fewer tokens landed than right drafts stood there: the reply stopped among them.
            self._tally.stops_inside += 1
