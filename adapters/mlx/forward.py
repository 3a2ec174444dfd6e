"""Lanes and passes: rows of several lanes through the decoder at once, and what becomes of them.

A pass leaves its rows provisional in every lane it touched; `keep` and `discard` settle them. A pass that raises leaves
every lane as it was. Knows no ticket, draw or sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.decoder import Decoder
from tensorfold.adapters.mlx.heads.head import Head, HeadLane, Kept
from tensorfold.adapters.mlx.layouts import Layout, chain_layout, lay_out
from tensorfold.adapters.mlx.row_context import RowContext, Segment
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.states import LayerState, Path
from tensorfold.domain.windows import Window

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class PassRows(Generic[A]):
    """A lane's rows of a pass that is not settled: their tokens, the first one's place, and what heads read of it."""

    tokens: Sequence[int]
    start: int
    tapped: Mapping[int, A]


@dataclass(slots=True)
class LaneState(Generic[A]):
    """One stream's state: what every layer holds of the `length` tokens absorbed, of at most `capacity`.

    `head` is a draft head's state, None where there is no head or where it failed to absorb something.
    """

    capacity: int
    layers: tuple[LayerState[A], ...]
    ops: RowOps[A]
    head: HeadLane[A] | None = None
    length: int = 0
    rows: PassRows[A] | None = None

    def keep(self, path: Path) -> None:
        """Commit these rows of the lane's pass."""
        for layer in self.layers:
            layer.keep(path)
        if self.head is not None and path and self.rows is not None:
            self._absorb(self.head, self.rows, path)
        self.length += len(path)
        self.rows = None

    def _absorb(self, head: HeadLane[A], rows: PassRows[A], path: Path) -> None:
        places = [rows.start + row for row in path]
        try:
            tapped = {layer: self.ops.pick(stream, places) for layer, stream in rows.tapped.items()}
            head.absorb(Kept(tuple(rows.tokens[row] for row in path), tapped))
            # A head that is not asked for drafts would otherwise leave its graph to grow from round to round.
            self.ops.start(*head.buffers())
        except Exception:
            # What a head cannot take in costs its drafts on this lane and nothing else.
            self.head = None

    def discard(self) -> None:
        """Forget the lane's pass."""
        for layer in self.layers:
            layer.discard()
        self.rows = None

    def fork(self) -> LaneState[A]:
        """A second lane with the same state."""
        head = None if self.head is None else self.head.fork()
        return LaneState(self.capacity, tuple(layer.fork() for layer in self.layers), self.ops, head, self.length)


@dataclass(frozen=True, slots=True)
class LanePart(Generic[A]):
    """One lane's rows in a pass."""

    lane: LaneState[A]
    tokens: Sequence[int]
    layout: Layout


class Forward(Generic[A]):
    """Passes over one decoder, and its draft head if it has one."""

    def __init__(self, decoder: Decoder[A], head: Head[A] | None = None) -> None:
        self.decoder, self.head = decoder, head

    def open(self, capacity: int, *, drafts: bool = False) -> LaneState[A]:
        """An empty lane; its head absorbs along where it `drafts`."""
        head = self.head.open(capacity) if drafts and self.head is not None else None
        return LaneState(capacity, self.decoder.states(capacity), self.decoder.ops, head)

    def launch(self, parts: Sequence[LanePart[A]], drawn: Sequence[int]) -> A:
        """Logits, on the device, of the rows at `drawn`; rows are counted part after part."""
        try:
            logits = self.decoder.logits(self._pass(parts), drawn)
            self.decoder.ops.start(logits)
        except BaseException:
            for part in parts:
                part.lane.discard()
            raise
        return logits

    def _pass(self, parts: Sequence[LanePart[A]]) -> A:
        """The residual behind the last layer; lanes whose head absorbs remember what it reads."""
        drafting = self.head is not None and any(part.lane.head is not None for part in parts)
        taps = self.head.taps if drafting and self.head is not None else frozenset[int]()
        context = _context(parts)
        stream, tapped = self.decoder.hidden(context, taps)
        for part, segment in zip(parts, context.segments, strict=True):
            if part.lane.head is not None:
                part.lane.rows = PassRows(part.tokens, segment.start, tapped)
        return stream

    def absorb(self, lane: LaneState[A], ids: NDArray[np.int64], rows: int = 0) -> None:
        """Commit prompt tokens, in passes of `rows` rows, 0 for all at once; nothing is drawn."""
        step = rows or max(1, len(ids))
        for start in range(0, len(ids), step):
            part = ids[start : start + step]
            layout = chain_layout(lane.length, len(part))
            try:
                self._pass([LanePart(lane, part.tolist(), layout)])
                lane.keep(tuple(range(len(part))))
                self.decoder.ops.settle([*lane.layers, *([] if lane.head is None else [lane.head])])
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
