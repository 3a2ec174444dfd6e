"""Lanes and passes: rows of several lanes through the decoder at once, and what becomes of them.

A pass leaves its rows provisional in every lane it touched; `keep` and `discard` settle them. A pass that raises leaves
every lane as it was. Knows no ticket, draw or sampling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.decoder import Decoder
from tensorfold.adapters.mlx.layouts import Layout, chain_layout, lay_out
from tensorfold.adapters.mlx.row_context import RowContext, Segment
from tensorfold.adapters.mlx.states import LayerState, Path
from tensorfold.domain.windows import Window

A = TypeVar("A")


@dataclass(slots=True)
class LaneState(Generic[A]):
    """One stream's state: what every layer holds of the `length` tokens absorbed, of at most `capacity`."""

    capacity: int
    layers: tuple[LayerState[A], ...]
    length: int = 0

    def keep(self, path: Path) -> None:
        """Commit these rows of the lane's pass."""
        for layer in self.layers:
            layer.keep(path)
        self.length += len(path)

    def discard(self) -> None:
        """Forget the lane's pass."""
        for layer in self.layers:
            layer.discard()

    def fork(self) -> LaneState[A]:
        """A second lane with the same state."""
        return LaneState(self.capacity, tuple(layer.fork() for layer in self.layers), self.length)


@dataclass(frozen=True, slots=True)
class LanePart(Generic[A]):
    """One lane's rows in a pass."""

    lane: LaneState[A]
    tokens: Sequence[int]
    layout: Layout


class Forward(Generic[A]):
    """Passes over one decoder."""

    def __init__(self, decoder: Decoder[A]) -> None:
        self.decoder = decoder

    def open(self, capacity: int) -> LaneState[A]:
        """An empty lane."""
        return LaneState(capacity, self.decoder.states(capacity))

    def launch(self, parts: Sequence[LanePart[A]], drawn: Sequence[int]) -> A:
        """Logits, on the device, of the rows at `drawn`; rows are counted part after part."""
        try:
            stream, _ = self.decoder.hidden(_context(parts))
            logits = self.decoder.logits(stream, drawn)
            self.decoder.ops.start(logits)
        except BaseException:
            for part in parts:
                part.lane.discard()
            raise
        return logits

    def absorb(self, lane: LaneState[A], ids: NDArray[np.int64], rows: int = 0) -> None:
        """Commit prompt tokens, in passes of `rows` rows, 0 for all at once; nothing is drawn."""
        step = rows or max(1, len(ids))
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            layout = chain_layout(lane.length, len(part))
            try:
                self.decoder.hidden(_context([LanePart(lane, part.tolist(), layout)]))
                lane.keep(tuple(range(len(part))))
                self.decoder.ops.settle(lane.layers)
            except BaseException:
                lane.discard()
                raise

    def logits(self, lane: LaneState[A], window: Window) -> NDArray[np.float32]:
        """Logits [R, V] of every row of a window on one lane, whose rows stay provisional."""
        part = LanePart(lane, window.tokens, lay_out(window, lane.length))
        return self.decoder.host(self.launch([part], range(len(window))))


def _context(parts: Sequence[LanePart[A]]) -> RowContext[A]:
    segments: list[Segment[A]] = []
    at = 0
    for part in parts:
        segments.append(Segment(part.lane.layers, part.layout, at, at + len(part.tokens)))
        at += len(part.tokens)
    ids = np.fromiter((token for part in parts for token in part.tokens), np.int64, at)
    return RowContext(ids, np.concatenate([part.layout.positions for part in parts]), tuple(segments))
