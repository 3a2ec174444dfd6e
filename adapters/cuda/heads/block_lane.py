"""What a block drafter holds of one lane, and a block that was queued for it behind a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tensorfold.adapters.cuda.heads.block_pass import length_for
from tensorfold.adapters.cuda.heads.blocks import Reading
from tensorfold.adapters.cuda.heads.head import KeptRows, Taps
from tensorfold.adapters.cuda.heads.selector import Selector
from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.application.ports.target_model import Lattice, ProposeSpec

if TYPE_CHECKING:
    from tensorfold.adapters.cuda.heads.dflash import BlockDrafts

MOST_ROWS = 64
"""Kept rows of one pass; a span of more is a prompt's."""


class BlockLane:
    """Keys and values of `length` kept tokens, as far as blocks can reach back, in the ring of its lane."""

    def __init__(self, head: BlockDrafts, entry: LaneEntry) -> None:
        self._head, self.ring = head, head.rings.of(entry)
        self.length = 0

    def absorb(self, tokens: tuple[int, ...], taps: Taps) -> None:
        """Enter a key and a value for each token of a prompt's span, in every layer."""
        count = len(tokens)
        if count <= MOST_ROWS:
            self._head.take([KeptRows(self, tokens, range(count))], taps)
        else:
            first = self.longer(count).start
            self._head.absorb_span(self.ring, first, count, taps)

    def longer(self, count: int) -> range:
        """The positions of further kept tokens."""
        first, self.length = self.length, self.length + count
        return range(first, self.length)

    def propose(self, spec: ProposeSpec) -> Lattice | None:
        """The lattice of a block behind the pending token."""
        return self._head.propose([(self, spec)])[0]

    def fork(self, entry: LaneEntry) -> BlockLane:
        """A copy for another entry with the same committed tokens."""
        twin = self._head.open(entry)
        twin.length = self.length
        self._head.rings.copy(self.ring, twin.ring)
        return twin

    def export(self) -> tuple[bytes, ...]:
        """Keys and values, layer by layer."""
        return self._head.rings.export(self.ring, self.length)

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens. Raises ValueError on a wrong size."""
        self._head.rings.load(self.ring, parts, length)
        self.length = length


class QueuedBlock:
    """A block of one lane behind a launch, in line `column` of what is told."""

    def __init__(self, selector: Selector, lane: BlockLane, length: int, told: Reading, column: int) -> None:
        self._selector, self._lane, self._length = selector, lane, length
        self._told, self._column = told, column

    def take(self, tokens: tuple[int, ...]) -> None:
        """The lane keeps what was found."""
        self._lane.longer(len(tokens))

    def drafts(self, spec: ProposeSpec) -> Lattice | None:
        """The block's lattice, if it is as long as one that is asked for."""
        if length_for(spec.depth) != self._length:
            return None
        return self._selector.lattice(self._told.get()[self._column].numpy(), spec.depth)
