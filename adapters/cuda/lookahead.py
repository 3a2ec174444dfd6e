"""The launch that will most likely be asked for next, queued before the host has read the draws of this one.

Streams that go on a row at a time take the token they draw: its id is on the device already. What was queued ahead
counts only where the engine then asks for exactly that; otherwise it changed nothing that is read again: its keys lie
behind every length, its ring rows are free, and its state lies in a place of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tensorfold.adapters.cuda.plans import PlannedRows
from tensorfold.adapters.cuda.tickets import Launched, LaunchedWindow
from tensorfold.application.ports.target_model import Lane, LaneWindow, RoundBatch

PLAIN_ROUNDS = 2
"""Rounds of one row in a row after which a stream is expected to go on so."""


def is_plain(asked: LaneWindow) -> bool:
    """Whether a window is one drawn row, without a mask and not audited."""
    return len(asked.window) == 1 and asked.masks is None and not asked.audit


@dataclass(slots=True)
class Ahead:
    """A launch queued behind `after`: one row for each of its windows, in their order."""

    after: Launched
    planned: list[PlannedRows]
    launched: Launched

    def is_asked(self, batch: RoundBatch) -> bool:
        """Whether a round asks for exactly what was queued."""
        before = self.after.windows
        if len(batch.windows) != len(before) or not self.after.collected:
            return False
        return all(
            self._same(asked, window, plan, drawn[-1])
            for asked, window, plan, drawn in zip(
                batch.windows, before, self.planned, self.after.draws.tokens, strict=True
            )
        )

    def taken(self, batch: RoundBatch) -> Launched:
        """The launch that was queued, as the one that is asked for now: its rows lie where it was planned."""
        windows = tuple(
            replace(window, asked=asked) for window, asked in zip(self.launched.windows, batch.windows, strict=True)
        )
        return replace(self.launched, windows=windows)

    def _same(self, asked: LaneWindow, window: LaunchedWindow, plan: PlannedRows, drawn: int) -> bool:
        now, then = window.entry, plan.entry
        return (
            is_plain(asked)
            and asked.lane == window.lane
            and asked.window.tokens == (drawn,)
            and asked.sampling == window.asked.sampling
            and (now.length, now.places, now.last, now.replay) == (then.length, then.places, then.last, then.replay)
        )


@dataclass(slots=True)
class Habits:
    """How many rounds of one row each lane has had in a row."""

    rounds: dict[Lane, int] = field(default_factory=dict)

    def note(self, batch: RoundBatch) -> bool:
        """Take in a round; whether all its lanes are expected to go on a row at a time."""
        known = self.rounds
        self.rounds = {asked.lane: known.get(asked.lane, 0) + 1 if is_plain(asked) else 0 for asked in batch.windows}
        return all(count >= PLAIN_ROUNDS for count in self.rounds.values())
