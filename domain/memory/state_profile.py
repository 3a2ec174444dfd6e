"""The bytes a lane holds after so many tokens, buffers as a backend lets them grow. Read from a plan's state spec.

Knows no allocator. `held` is never below what the buffers of a lane come to: admission and windows rest on that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tensorfold.domain.families.state import StateEntry

_HEAD = "mtp."


@dataclass(frozen=True, slots=True)
class Holding:
    """How a backend holds rows: their dtype, and buffers of `first` rows that double, in steps of `step`, to capacity.

    A window's buffer holds `slack` rows beside the window: those of a pass, and what rounding adds. With `rings` it has
    them from the start on, else it grows to them. With `whole` a lane is given, when it opens, all that its capacity
    and `slack` rows behind it take, and nothing grows.
    """

    dtype: str
    first: int
    step: int
    slack: int
    rings: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Growing:
    """Buffers that grow alike: bytes of one row of them all, tokens a row stands for, the window (0: all)."""

    row: int
    per: int
    window: int


@dataclass(frozen=True, slots=True)
class StateProfile:
    """One lane. `fixed` bytes whatever its length, `passing` more while a pass runs, `growing` ones beside them.

    `largest` are the bytes of one row of the largest single buffer.
    """

    fixed: int
    passing: int
    growing: tuple[Growing, ...]
    largest: int
    holding: Holding

    def held(self, tokens: int, capacity: int) -> int:
        """Bytes of a lane that holds `tokens` of at most `capacity` tokens."""
        return self.fixed + self.passing + sum(self._bytes(part, tokens, capacity) for part in self.growing)

    def growth(self, capacity: int) -> int:
        """Bytes that the largest buffers take twice while they are made larger: two of them, half full each."""
        return self.largest * self._rounded(capacity)

    @property
    def token_bytes(self) -> int:
        """Bytes that a token adds for good, on average and rounded up."""
        return sum(-(-part.row // part.per) for part in self.growing if not part.window)

    def _bytes(self, part: Growing, tokens: int, capacity: int) -> int:
        if self.holding.whole:
            return part.row * self._rounded(-(-(capacity + self.holding.slack) // part.per))
        if part.window and self.holding.rings:
            return part.row * (part.window + self.holding.slack)
        if part.window:
            rows = min(self._rounded(tokens), part.window + self.holding.slack)
            return part.row * max(rows, min(self.holding.first, self._rounded(capacity)))
        return part.row * self._slots(-(-tokens // part.per), -(-capacity // part.per))

    def _slots(self, need: int, most: int) -> int:
        slots, most = min(self.holding.first, self._rounded(most)), self._rounded(most)
        while slots < need and slots < most:
            slots = min(2 * slots, most)
        return max(slots, self._rounded(need))

    def _rounded(self, rows: int) -> int:
        return -(-max(rows, 1) // self.holding.step) * self.holding.step


def state_profile(entries: Sequence[StateEntry], activation: str, holding: Holding) -> StateProfile:
    """The profile of a lane with these buffers, rows of the plan's `activation` held in the backend's own dtype.

    States behind a pass stand beside those before it until it is kept, so what has a fixed size counts twice.
    """
    held = [replace(e, dtype=holding.dtype) if e.dtype == activation else e for e in entries]
    rows: dict[tuple[int, int], int] = {}
    for entry in held:
        if entry.per:
            kind = (entry.per, entry.window)
            # A head chains its drafts in a copy of its own state.
            copies = 2 if entry.path.startswith(_HEAD) else 1
            rows[kind] = rows.get(kind, 0) + copies * entry.row_bytes
    fixed = sum(entry.fixed_bytes for entry in held)
    return StateProfile(
        fixed=fixed,
        passing=fixed,
        growing=tuple(Growing(size, per, window) for (per, window), size in rows.items()),
        largest=max((entry.row_bytes for entry in held if entry.per and not entry.window), default=0),
        holding=holding,
    )
