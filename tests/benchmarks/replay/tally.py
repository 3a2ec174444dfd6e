"""What is counted while streams are replayed, and the figures made of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Tally:
    """Sums over rounds. `cost` is in times of one row; `asked` and `look_up_s` are the timed source's.

    A window counts as the source's own when the source took part in it: `window_ids` adds the depth of its deepest row,
    `landed_ids` the drafts of it that were kept. `wasted_rows` are rows of any source that did not land.
    """

    rounds: int = 0
    tokens: int = 0
    cost: float = 0.0
    rows: int = 0
    wasted_rows: int = 0
    windows: int = 0
    window_ids: int = 0
    landed_ids: int = 0
    asked: int = 0
    look_up_s: float = 0.0

    @property
    def per_round(self) -> float:
        """Tokens a round."""
        return self.tokens / self.rounds

    @property
    def per_time(self) -> float:
        """Tokens in the time of one row."""
        return self.tokens / self.cost

    @property
    def landed(self) -> float:
        """The share of its windows' ids that landed; 0 where it had no window."""
        return self.landed_ids / self.window_ids if self.window_ids else 0.0

    @property
    def look_up_us(self) -> float:
        """Microseconds a round in the source."""
        return 1e6 * self.look_up_s / self.asked if self.asked else 0.0
