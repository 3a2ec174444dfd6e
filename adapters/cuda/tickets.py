"""A launch in flight: its windows, where each of their rows lies, and the draws once they are collected."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.cuda.heads.head import KeptRows
from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.plans import PlannedRows
from tensorfold.adapters.cuda.sampler import RowDraw
from tensorfold.application.ports.target_model import Draws, Lane, LaneWindow, Path


@dataclass(frozen=True, slots=True)
class LaunchedWindow:
    """One window: its lane, what was asked, what was planned, and the place of its first row in the launch."""

    lane: Lane
    entry: LaneEntry
    asked: LaneWindow
    planned: PlannedRows
    start: int

    @property
    def rows(self) -> int:
        """Rows of the window."""
        return len(self.asked.window)

    def draws(self) -> list[RowDraw | None]:
        """What is drawn of each row."""
        asked, forced = self.asked, self.asked.window.forced
        made: list[RowDraw | None] = [None] * forced
        for row in range(forced, self.rows):
            mask = asked.masks[row] if asked.masks is not None else None
            made.append(RowDraw(self.planned.positions[row] + 1, asked.sampling, mask))
        return made

    def check_path(self, path: Path) -> None:
        """Raise ValueError unless every row follows the one before it and the first is row 0."""
        before, parents = -1, self.asked.window.parents
        for row in path:
            if not 0 <= row < len(parents) or parents[row] != before:
                raise ValueError(f"the path {tuple(path)} of lane {self.lane} does not follow its window's rows")
            before = row

    def kept_rows(self, path: Path, head: Any) -> KeptRows:
        """What stays of it, for the head's state in its lane."""
        tokens = self.asked.window.tokens
        return KeptRows(head, tuple(tokens[row] for row in path), [self.start + row for row in path])


@dataclass(slots=True)
class Launched:
    """`drawn` int32 [R] lie on the device until the next run; `tokens` is the host's copy, whole once `copied` is over.

    `logits` are kept where a window is audited.
    """

    windows: tuple[LaunchedWindow, ...]
    taps: dict[int, Any]
    drawn: Any
    tokens: Any
    copied: Any
    logits: Any = None
    collected: bool = False
    draws: Draws = field(default_factory=lambda: Draws(()))

    def collect(self) -> Draws:
        """Wait for the draws."""
        if self.copied is not None:
            self.copied.synchronize()
        drawn = self.tokens.tolist()
        tokens = []
        for window in self.windows:
            forced = window.asked.window.forced
            tokens.append((*(-1,) * forced, *drawn[window.start + forced : window.start + window.rows]))
        prints, self.logits = self._prints(), None
        self.draws, self.collected = Draws(tuple(tokens), prints=prints), True
        return self.draws

    def _prints(self) -> tuple[Sequence[int] | None, ...]:
        if self.logits is None:
            return ()
        rows = self.logits.float().cpu().numpy()
        prints: list[Sequence[int] | None] = []
        for window in self.windows:
            forced = window.asked.window.forced
            own = rows[window.start + forced : window.start + window.rows]
            prints.append([0] * forced + [_digest(row) for row in own] if window.asked.audit else None)
        return tuple(prints)


def drawn_after(window: LaunchedWindow) -> RowDraw:
    """The draw of the row behind a window of one row."""
    return RowDraw(window.planned.positions[-1] + 2, window.asked.sampling, None)


def _digest(row: NDArray[np.float32]) -> int:
    return int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest(), "little")
