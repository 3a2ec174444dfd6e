"""What a proof compared and saw, and what it still lacks. Values only; they are filled in by `proving`.

A mode that saw too few kept or refused drafts, windows or stops has proved nothing: `Row.lacks` says what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tensorfold.application.heads import HEAD
from tensorfold.application.planting import Tally
from tensorfold.application.replies import ReplyStats
from tensorfold.domain.drafting.sources import took_part
from tensorfold.domain.gates.constraint import Constraint
from tensorfold.domain.recall.source import RECALL
from tensorfold.domain.sampling import Sampling

LEAST_KEPT = 100
LEAST_REFUSED = 100
LEAST_SHARED = 10
LEAST_HEADED = 100
"""Drafts of the model's head that must be verified: whether any lands is the head's affair."""
LEAST_RESUMED = 100
"""Ids of prompts that kept states must spare."""
LEAST_COPIED = 100
"""Tokens copied from the record that must land, and that must miss."""


@dataclass(frozen=True, slots=True)
class Case:
    """One request of the proof and, once known, its serial reply and the digests of the rows that drew it."""

    prompt: tuple[int, ...]
    sampling: Sampling
    reply: tuple[int, ...] = ()
    prints: tuple[int, ...] = ()
    constraint: Constraint | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a mode first left the serial reply; `position` is absolute. `bits`: the token is equal, its row is not."""

    case: int
    position: int
    expected: int
    got: int
    bits: bool = False

    def sentence(self) -> str:
        """The difference in words."""
        what = "its row's bits differ" if self.bits else f"expected token {self.expected}, got {self.got}"
        return f"first difference at position {self.position} of prompt {self.case}: {what}"


@dataclass(slots=True)
class Copies:
    """Tokens copied from the record: landed and missed. `lands`, `misses`: whether any should land, or miss, at all."""

    landed: int = 0
    missed: int = 0
    lands: bool = True
    misses: bool = True

    def lacks(self) -> tuple[str, ...]:
        """What must still be copied."""
        lacks = []
        if self.lands and self.landed < LEAST_COPIED:
            lacks.append(f"{self.landed} copied tokens landed, at least {LEAST_COPIED} are needed")
        if self.misses and self.missed < LEAST_COPIED:
            lacks.append(f"{self.missed} copied tokens missed, at least {LEAST_COPIED} are needed")
        return tuple(lacks)


@dataclass(slots=True)
class Row:
    """What one mode compared and saw."""

    mode: str
    compared: int = 0
    differences: int = 0
    first: Difference | None = None
    drafts: dict[str, list[int]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    widest: int = 0
    counts_drafts: bool = True
    shared: int | None = None
    copies: Copies | None = None
    heads: bool = False
    resumed: int | None = None
    note: str = ""

    @property
    def kept(self) -> int:
        """Drafts kept, all sources."""
        return sum(kept for _, kept in self.drafts.values())

    @property
    def headed(self) -> int:
        """Drafts in windows that the model's head took part in."""
        return sum(drafted for source, (drafted, _) in self.drafts.items() if took_part(HEAD, source))

    @property
    def refused(self) -> int:
        """Drafts refused, all sources."""
        return sum(drafted - kept for drafted, kept in self.drafts.values())

    def lacks(self) -> tuple[str, ...]:
        """What the mode must still see before it proves anything."""
        lacks = []
        if self.shared is not None and self.shared < LEAST_SHARED:
            lacks.append(f"{self.shared} rounds were shared, at least {LEAST_SHARED} are needed")
        if self.copies is not None:
            lacks += self.copies.lacks()
        if self.heads and self.headed < LEAST_HEADED:
            lacks.append(f"{self.headed} drafts of the head were verified, at least {LEAST_HEADED} are needed")
        if self.resumed is not None and self.resumed < LEAST_RESUMED:
            lacks.append(f"{self.resumed} prompt tokens were resumed, at least {LEAST_RESUMED} are needed")
        if not self.counts_drafts:
            return tuple(lacks)
        if self.kept < LEAST_KEPT:
            lacks.append(f"{self.kept} drafts kept, at least {LEAST_KEPT} are needed")
        if self.refused < LEAST_REFUSED:
            lacks.append(f"{self.refused} drafts refused, at least {LEAST_REFUSED} are needed")
        if missing := self.tally.missing(self.widest):
            lacks.append(f"no window kept exactly {', '.join(map(str, missing))} drafts")
        if not self.tally.stops_inside:
            lacks.append("no reply stopped inside a kept run")
        return tuple(lacks)

    def count(self, stats: ReplyStats) -> None:
        """Add one reply's drafts, and the ids of its prompt that were resumed."""
        if self.resumed is not None:
            self.resumed += stats.cached_tokens
        for source in stats.sources:
            pair = self.drafts.setdefault(source.source, [0, 0])
            pair[0] += source.drafted
            pair[1] += source.kept
            # Windows that the record shared with other sources are left out: whose draft landed there is not told.
            if self.copies is not None and source.source == RECALL:
                self.copies.landed += source.kept
                self.copies.missed += source.drafted - source.kept


@dataclass(frozen=True, slots=True)
class Report:
    """The proof's outcome. `reasons` are the sentences that made it fail."""

    rows: tuple[Row, ...]
    reasons: tuple[str, ...]

    @property
    def compared(self) -> int:
        """Tokens compared with the serial reference over all modes."""
        return sum(row.compared for row in self.rows)

    @property
    def differences(self) -> int:
        """Tokens or rows that differed."""
        return sum(row.differences for row in self.rows)

    @property
    def passed(self) -> bool:
        """Whether everything equal and enough was seen."""
        return not self.reasons
