"""What a draft head is to the model and to a lane: it absorbs the rows that a lane keeps, and drafts from them.

Only its speed matters to a reply: a head that fails, drifts or forgets costs drafts and no token. Its keys lie in pools
of its own under the numbers of the target's pages, so the lane's pages are its pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.rows import PAGE, Tensor
from tensorfold.application.ports.target_model import Chain, HeadLimits, Lattice, ProposeSpec
from tensorfold.domain.families.state import StateEntry

Taps = Mapping[int, Tensor]


@dataclass(frozen=True, slots=True)
class KeptRows:
    """What one lane keeps of a launch: tokens, and the rows of the launch that they are."""

    lane: Any
    tokens: tuple[int, ...]
    rows: Sequence[int]


@dataclass(frozen=True, slots=True)
class Behind:
    """A lane's window behind whose draws its next drafts are queued before the host has read them.

    `line` is its place among the launch's windows, `start` the first of its `rows` in the launch; `spec` is what will
    be asked for, but for its pending token, which nobody knows yet.
    """

    lane: Any
    line: int
    start: int
    rows: int
    spec: ProposeSpec


@dataclass(frozen=True, slots=True)
class Found:
    """What a launch will have left on the device, for work that is queued behind it.

    `kept` int32 [windows, 2 + W]: of each window how many rows stand, its next pending token, those rows; `tokens`
    int32 [R], those of the launch's rows; `taps`, the residual of all of them.
    """

    kept: Tensor
    tokens: Tensor
    taps: Taps


class QueuedDrafts(Protocol):
    """Drafts of one lane that are under way, and the rows that they follow from."""

    def take(self, tokens: tuple[int, ...]) -> None:
        """The lane keeps the rows that the device found: the head has them already. Never raises."""
        ...

    def drafts(self, spec: ProposeSpec) -> Chain | Lattice | None:
        """Behind `take`: the answer to `spec`, whose pending token is the one that was found; None: not of this."""
        ...


class HeadLane(Protocol):
    """A head's state in one lane, or beside a kept state."""

    def absorb(self, tokens: tuple[int, ...], taps: Taps) -> None:
        """Take in a prompt's span: its tokens, and the residual [n, D] behind each tapped layer count."""
        ...

    def propose(self, spec: ProposeSpec) -> Chain | Lattice | None:
        """Drafts behind `spec.pending`; None where nothing was absorbed yet or the lane holds no slot."""
        ...

    def fork(self, entry: LaneEntry) -> HeadLane:
        """A copy for another entry with the same committed tokens."""
        ...

    def export(self) -> tuple[bytes, ...]:
        """One buffer for each of the head's entries."""
        ...

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens. Raises ValueError on a wrong size."""
        ...


class DraftHead(Protocol):
    """A draft head. `taps` are the counts of finished layers whose residual it reads."""

    @property
    def taps(self) -> frozenset[int]:
        """Layer counts."""
        ...

    @property
    def limits(self) -> HeadLimits:
        """What may be asked of it, and its family's defaults."""
        ...

    @property
    def entries(self) -> tuple[StateEntry, ...]:
        """What its state in a lane holds."""
        ...

    def open(self, entry: LaneEntry) -> HeadLane:
        """Empty state of a lane."""
        ...

    def take(self, kept: Sequence[KeptRows], taps: Taps) -> None:
        """Take in rows of one launch that lanes keep; `taps` hold the residual of all its rows."""
        ...

    def queue(self, behind: Sequence[Behind], found: Found) -> list[QueuedDrafts | None]:
        """Queue drafts for lanes of one launch; None where that cannot be.

        What the host knows of a lane stays as it is until `take`: without that call nothing was absorbed.
        """
        ...

    def move(self, moves: Tensor) -> None:
        """The target moved keys of kept rows: nothing here, where only kept rows ever enter."""
        ...


def copied_pages(source: LaneEntry, target: LaneEntry, length: int) -> list[tuple[int, int]]:
    """Pages, (from, to) each, that hold `length` positions and that the two lanes do not share."""
    count = -(-length // PAGE)
    pairs = zip(source.pages[:count], target.pages[:count], strict=False)
    return [(old, new) for old, new in pairs if old != new]
