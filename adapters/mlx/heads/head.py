"""What a draft head is to a lane: it absorbs the rows that the lane keeps, and drafts from what it absorbed.

Only its speed matters to a reply: a head that fails, drifts or forgets costs drafts and no token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tensorfold.application.ports.target_model import Chain, HeadLimits, Lattice, ProposeSpec
from tensorfold.domain.families.state import StateEntry

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Kept(Generic[A]):
    """Rows that a lane committed, in order: their tokens, and the residual [n, ..] behind each tapped layer count."""

    tokens: tuple[int, ...]
    tapped: Mapping[int, A]


class HeadLane(Protocol[A]):
    """A head's state in one lane."""

    def absorb(self, kept: Kept[A]) -> None:
        """Take in rows that were committed."""
        ...

    def propose(self, spec: ProposeSpec) -> Chain | Lattice | None:
        """Drafts behind `spec.pending`, the state left as it is; None where nothing was absorbed yet."""
        ...

    def fork(self) -> HeadLane[A]:
        """An independent copy."""
        ...

    def export(self) -> tuple[bytes, ...]:
        """One buffer for each of the head's entries."""
        ...

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Become the state behind `length` tokens. Raises ValueError on a wrong size."""
        ...

    def held_bytes(self) -> int:
        """Bytes of the buffers."""
        ...

    def buffers(self) -> Sequence[A]:
        """Arrays to be computed before a prompt goes on."""
        ...


class Head(Protocol[A]):
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

    def open(self, capacity: int) -> HeadLane[A]:
        """Empty state of a lane that will absorb at most `capacity` tokens."""
        ...
