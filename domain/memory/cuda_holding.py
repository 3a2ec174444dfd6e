"""What a model loaded for CUDA holds: how many lanes, pages and states its pools have, and the bytes of all of it.

The loader allocates by the same `Room` that the estimate counts, so the two cannot drift apart. Knows no device and no
library: figures of a card and of a machine are handed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorfold.domain.families.state import ITEM_BYTES, StateEntry

PAGE = 512
"""Positions of a page: the parts into which attention cuts the keys."""
TAIL = 3
"""Inputs before a row that a convolution reads."""
_WIDE, _NARROW, _MANY_STREAMS = 64, 16, 8
_LEAST_ROWS = 64
_FACTORS = 8
_WAITING = 2 * (_WIDE + 1)
"""Kept rows of a lane that a draft head has not entered yet."""
_DRAFTER = "drafter."
STATES = 3
"""Places a lane has for its recurrent states: the committed one, the one a launch leaves, one for a launch ahead."""


@dataclass(frozen=True, slots=True)
class Room:
    """Sizes of the pools that lanes are made of.

    `lanes` are lane slots, the last of which is nobody's (rows that pad a launch belong to it). `pages` are pages of
    512 positions, the last of which is nobody's; a lane of the whole context takes `pages_per_lane`. `ring` are the
    rows of a lane's rings, `places` the recurrent states there is room for: three a lane, then one for each kept prompt
    end. `width` is the widest window of a lane, `rows` are the most rows of one launch.
    """

    lanes: int
    pages: int
    ring: int
    places: int
    width: int
    rows: int
    pages_per_lane: int

    @property
    def kept(self) -> int:
        """Prompt ends that may be kept beside the lanes."""
        return self.places - STATES * self.lanes

    @property
    def ring_rows(self) -> int:
        """Rows of a flat ring: those of every lane slot, then the last three inputs of each kept prompt end."""
        return self.lanes * self.ring + TAIL * self.kept

    @property
    def positions(self) -> int:
        """Positions that a lane of the whole context has pages for."""
        return self.pages_per_lane * PAGE


def width_of(streams: int) -> int:
    """The widest window of a lane: many streams share a launch, so each gets fewer rows of it."""
    return _WIDE if streams <= _MANY_STREAMS else _NARROW


def pages_for(tokens: int, width: int) -> int:
    """Pages of a lane of `tokens`, with room for the rows of one window behind them."""
    return -(-(tokens + width) // PAGE)


def room(streams: int, context: int, kept: int = 0, pages: int | None = None) -> Room:
    """The pools for so many streams of at most `context` tokens, and `kept` prompt ends beside them.

    `pages` are those of the whole pool, nobody's included; without them every stream has the pages of a whole context.
    """
    width = width_of(streams)
    each = pages_for(context, width)
    lanes = streams + 1
    return Room(
        lanes=lanes,
        pages=streams * each + 1 if pages is None else pages,
        ring=TAIL + 2 * width,
        places=STATES * lanes + kept,
        width=width,
        rows=max(_LEAST_ROWS, streams),
        pages_per_lane=each,
    )


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Bytes of the parts that pools are made of, over all layers.

    `page`: keys and values of a page; `place`: the recurrent states behind one token; `ring_row`: the inputs of one
    row in the rings, `step_row` what a recurrent step makes of them, for rows of lanes alone; `head`: what a draft head
    holds for a lane or a kept prompt end besides pages.
    """

    page: int
    place: int
    ring_row: int
    step_row: int = 0
    head: int = 0

    def fixed(self, pools: Room) -> int:
        """Bytes of everything but the pages that lanes and kept prompt ends are given."""
        rings = pools.ring_rows * self.ring_row + pools.lanes * pools.ring * self.step_row
        return self.page + pools.places * self.place + rings + (pools.lanes + pools.kept) * self.head

    def kept(self) -> int:
        """Bytes that room for one more kept prompt end takes: its state, its inputs, and the page that it ends in."""
        return self.place + TAIL * self.ring_row + self.head + self.page


def pool_sizes(entries: Sequence[StateEntry], activation: str, dtype: str = "bfloat16") -> PoolSizes:
    """The sizes for lanes with these buffers, values of the plan's `activation` held in `dtype`."""
    held = [replace(entry, dtype=dtype) if entry.dtype == activation else entry for entry in entries]
    # A layer that reads a window of keys has pages for all of them; a drafter holds its window alone.
    grows = [entry for entry in held if entry.per and not entry.path.startswith(_DRAFTER)]
    states = [entry for entry in held if entry.kind == "recurrent"]
    inputs = [entry for entry in held if entry.kind == "conv"]
    known = {entry.path for entry in (*grows, *states, *inputs)}
    raw = sum(entry.row_bytes // entry.shape[0] for entry in inputs)
    return PoolSizes(
        page=sum(entry.row_bytes * -(-PAGE // entry.per) for entry in grows),
        place=sum(entry.row_bytes for entry in states),
        ring_row=raw,
        # A step reads the convolution's results, and a few numbers for each head.
        step_row=raw + sum(_FACTORS * entry.shape[0] * ITEM_BYTES[entry.dtype] for entry in states),
        head=sum(_head_bytes(entry) for entry in held if entry.path not in known),
    )


def _head_bytes(entry: StateEntry) -> int:
    """Bytes of a window's rows with a page of slack; of a fixed buffer for each row that may wait in it."""
    return entry.row_bytes * (-(-(entry.window + PAGE) // entry.per) if entry.per else _WAITING)
