"""Hash models with one planted fault each: rows that drift when a window is wide or shared, buffers that are not reset.

Each claims the limits of a sound model, so that contract checks have something to find. Only the drawn tokens show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.target_model import Draws, Lane, Path, RoundBatch, Ticket
from tests.fakes.hash_lanes import HashLane, LaneTrail
from tests.fakes.hash_launch import DrawnRows, HashLaunch, PlannedWindow
from tests.fakes.hash_law import nudge
from tests.fakes.hash_model import HashModel

Reset = Literal["lane", "masks", "samplings", "positions", "rollback"]
POISON = -7


class DriftingModel(HashModel):
    """Rows of windows wider than `exact_width` are one unit in the last place off; `chains` and `trees` say which."""

    def __init__(self, exact_width: int, *args: Any, chains: bool = True, trees: bool = True, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.exact_width = exact_width
        self.chains, self.trees = chains, trees

    def _logits(self, rows: DrawnRows) -> NDArray[np.float32]:
        logits = super()._logits(rows)
        at = 0
        for window in rows.windows:
            count = len(window.tokens) - window.forced
            if len(window.tokens) > self.exact_width and (self.chains if window.is_chain else self.trees):
                nudge(logits[at : at + count])
            at += count
        return logits


class StreamsDriftingModel(HashModel):
    """Every row is one unit in the last place off when two or more lanes share a launch."""

    def _logits(self, rows: DrawnRows) -> NDArray[np.float32]:
        logits = super()._logits(rows)
        if len(rows.windows) > 1:
            nudge(logits)
        return logits


class GraphModel(HashModel):
    """Rows pass through fixed buffers, lane numbers are reused, and draws are views that the next launch overwrites.

    As it stands it keeps the port; a caller that reads old draws or uses a closed lane's number is caught. `forget`
    names resets to leave out: a recycled lane's state, a row's mask, its sampling settings, its position, or the state
    rolled back when rows are not kept.
    """

    def __init__(self, *args: Any, forget: Sequence[Reset] = (), **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.forget = frozenset(forget)
        rows = self.limits.batch_rows
        self._states = np.zeros(rows, dtype=np.uint64)
        self._masks: list[NDArray[np.uint32] | None] = [None] * rows
        self._samplings: list[Any] = [None] * rows
        self._positions = [-1] * rows
        self._slots: dict[Lane, int] = {}
        self._handed_out: list[list[int]] = []

    def close(self, lane: Lane) -> None:
        """Free a lane; its number is the next to be used."""
        state = self._lanes[lane].state if lane in self._lanes else 0
        super().close(lane)
        self._slots[lane] = state

    def launch(self, batch: RoundBatch) -> Ticket:
        """As the port says; draws handed out before are overwritten."""
        ticket = super().launch(batch)
        for draws in self._handed_out:
            draws[:] = [POISON] * len(draws)
        self._handed_out.clear()
        return ticket

    def collect(self, ticket: Ticket) -> Draws:
        """Views that live until the next launch."""
        draws = super().collect(ticket)
        views = [list(tokens) for tokens in draws.tokens]
        self._handed_out += views
        return Draws(tuple(views), prints=draws.prints)

    def discard(self, ticket: Ticket) -> None:
        """As the port says, unless the rollback is forgotten."""
        launch = self._launched.get(ticket.id)
        super().discard(ticket)
        if launch is not None and "rollback" in self.forget:
            for window in launch.windows:
                self._lanes[window.lane].state = window.states[-1]

    def _number(self) -> Lane:
        return next(n for n in range(len(self._lanes) + 1) if n not in self._lanes)

    def _add(self, lane: HashLane, trail: LaneTrail) -> Lane:
        number = super()._add(lane, trail)
        if "lane" in self.forget and number in self._slots:
            lane.state = self._slots[number]
        return number

    def _gathered(self, launch: HashLaunch) -> DrawnRows:
        rows = launch.rows()
        count = len(rows.tokens)
        masks = dict(rows.masks)
        self._states[:count] = rows.states
        for row in range(count):
            if "positions" not in self.forget or self._positions[row] < 0:
                self._positions[row] = rows.draw_positions[row]
            if "samplings" not in self.forget or self._samplings[row] is None:
                self._samplings[row] = rows.samplings[row]
            if "masks" not in self.forget or row in masks:
                self._masks[row] = masks.get(row)
        kept = [(row, mask) for row, mask in enumerate(self._masks[:count]) if mask is not None]
        return DrawnRows(
            self._states[:count], rows.tokens, self._positions[:count], self._samplings[:count], kept, rows.windows
        )

    def _commit(self, window: PlannedWindow, path: Path) -> None:
        super()._commit(window, path)
        if "rollback" in self.forget and window.lane in self._lanes:
            self._lanes[window.lane].state = window.states[-1]
