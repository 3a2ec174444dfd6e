"""A launch in flight: its windows, which of their rows are drawn, and the draws once they are collected."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.forward import LaneState
from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.states import Path
from tensorfold.application.ports.target_model import Draws, Lane, LaneWindow
from tensorfold.domain.sampling import draw_rows

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class LaunchedWindow(Generic[A]):
    """One window of a launch: its lane, as named and as it stands, and its layout."""

    lane: Lane
    state: LaneState[A]
    asked: LaneWindow
    layout: Layout

    @property
    def drawn(self) -> range:
        """The rows that are drawn: all but those whose next token is forced."""
        return range(self.asked.window.forced, len(self.layout))

    def check_path(self, path: Path) -> None:
        """Raise ValueError unless every row follows the one before it and the first is row 0."""
        before, parents = -1, self.asked.window.parents
        for row in path:
            if not 0 <= row < len(parents) or parents[row] != before:
                raise ValueError(f"the path {tuple(path)} of lane {self.lane} does not follow its window's rows")
            before = row


@dataclass(slots=True)
class Launch(Generic[A]):
    """`logits` on the device until they are collected, then None."""

    windows: tuple[LaunchedWindow[A], ...]
    logits: A | None

    def drawn(self) -> list[int]:
        """Places of the drawn rows among all rows of the launch."""
        places, at = [], 0
        for window in self.windows:
            places += [at + row for row in window.drawn]
            at += len(window.layout)
        return places

    def draws(self, logits: NDArray[np.float32]) -> Draws:
        """Draw from the drawn rows' `logits` [n, V], which masks overwrite."""
        prints = self._prints(logits)
        self._mask(logits)
        positions = [int(w.layout.positions[row]) + 1 for w in self.windows for row in w.drawn]
        samplings = [w.asked.sampling for w in self.windows for _ in w.drawn]
        tokens = draw_rows(logits, positions, samplings)
        split, at = [], 0
        for window in self.windows:
            count = len(window.drawn)
            split.append((*(-1,) * window.asked.window.forced, *tokens[at : at + count]))
            at += count
        return Draws(tuple(split), prints=prints)

    def _prints(self, logits: NDArray[np.float32]) -> tuple[Sequence[int] | None, ...]:
        if not any(window.asked.audit for window in self.windows):
            return ()
        prints: list[Sequence[int] | None] = []
        at = 0
        for window in self.windows:
            rows = logits[at : at + len(window.drawn)]
            forced = [0] * window.asked.window.forced
            prints.append(forced + [_digest(row) for row in rows] if window.asked.audit else None)
            at += len(window.drawn)
        return tuple(prints)

    def _mask(self, logits: NDArray[np.float32]) -> None:
        at = 0
        for window in self.windows:
            for row in window.drawn:
                mask = window.asked.masks[row] if window.asked.masks is not None else None
                if mask is not None:
                    logits[at, unpack_mask(mask, logits.shape[1]) == 0] = -np.inf
                at += 1


def unpack_mask(mask: NDArray[np.uint32], vocabulary: int) -> NDArray[np.uint8]:
    """One 0 or 1 for each token of a packed mask; bit t % 32 of word t // 32 is token t."""
    return np.unpackbits(np.ascontiguousarray(mask, "<u4").view(np.uint8), bitorder="little")[:vocabulary]


def _digest(row: NDArray[np.float32]) -> int:
    return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little")
