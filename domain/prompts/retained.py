"""States of prompts that are kept: which one a prompt resumes from, and which goes when room is short. Bookkeeping
only: what a state is made of it never looks at.

A kept state is used whole or not at all, since a recurrent one cannot be cut. Invariants: the bytes and numbers kept
never exceed their limits, an entry that is in use is never evicted, and what is matched has the bits that a prompt
would get by being read from its start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.prompts.chunks import ChunkPlan

State = TypeVar("State")
PINNED = 3
"""Shared beginnings that are kept before all else."""
SLOTS = 32


def ids_of(ids: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int32]:
    """Ids as entries hold them."""
    return np.asarray(ids, dtype=np.int32)


@dataclass(slots=True, eq=False)
class Prefix(Generic[State]):
    """A state behind `ids`, absorbed in chunks that began at `starts`; `size` bytes.

    `seconds` is what absorbing it took; `pinned` marks a beginning that conversations share; `prompt` is the prompt
    that used it last. `used` counts the store's uses at its last one.
    """

    ids: NDArray[np.int32]
    starts: tuple[int, ...]
    state: State
    size: int
    seconds: float = 0.0
    pinned: bool = False
    prompt: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    used: int = 0

    @property
    def length(self) -> int:
        """Ids absorbed."""
        return len(self.ids)

    def serves(self, ids: NDArray[np.int32], plan: ChunkPlan) -> bool:
        """Whether a prompt of that plan has this state on its way, bit for bit."""
        return fits_plan(self.ids, self.starts, ids, plan)


def fits_plan(kept: NDArray[np.int32], starts: tuple[int, ...], ids: NDArray[np.int32], plan: ChunkPlan) -> bool:
    """Whether the state behind `kept`, absorbed from `starts`, is one that a prompt passes through."""
    length = len(kept)
    return plan.cuts_at(length) and plan.before(length) == starts and bool(np.array_equal(kept, ids[:length]))


class RetainedPrefixes(Generic[State]):
    """At most `budget` bytes in at most `slots` entries, beside PINNED pinned ones."""

    def __init__(
        self,
        budget: int,
        slots: int = SLOTS,
        *,
        measure: Callable[[Iterable[Prefix[State]]], int] | None = None,
        dropped: Callable[[State], None] = lambda state: None,
    ) -> None:
        """`measure` tells what entries take together, where that is not the sum of their sizes; `dropped` is told of
        every state that is kept no more. Raises ValueError for a limit below 0.
        """
        if budget < 0 or slots < 0:
            raise ValueError(f"{budget} bytes in {slots} entries cannot be kept")
        self.budget = budget
        self._slots = slots
        self._measure = measure
        self._dropped = dropped
        self._entries: list[Prefix[State]] = []
        self._uses = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Prefix[State]]:
        """Entries, the last used first."""
        return iter(sorted(self._entries, key=lambda entry: -entry.used))

    @property
    def size(self) -> int:
        """Bytes kept."""
        if self._measure is not None:
            return self._measure(self._entries)
        return sum(entry.size for entry in self._entries)

    def match(self, ids: NDArray[np.int32], plan: ChunkPlan) -> Prefix[State] | None:
        """The longest entry that serves a prompt; None where none does. Nothing is changed."""
        found = [entry for entry in self._entries if entry.serves(ids, plan)]
        return max(found, key=lambda entry: entry.length, default=None)

    def use(self, entry: Prefix[State], prompt: NDArray[np.int32]) -> None:
        """Note that a prompt resumes from an entry."""
        self._uses += 1
        entry.used, entry.prompt = self._uses, prompt

    def insert(self, entry: Prefix[State], keep: Prefix[State] | None = None) -> bool:
        """Keep a state, in place of one behind the same ids; others go to make room. False where it was refused.

        Refused is what exceeds the budget by itself, or would take the place of `keep`, which stays. A refused state is
        the caller's.
        """
        if entry.size > self.budget or (self._slots == 0 and not entry.pinned):
            return False
        same = next((old for old in self._entries if np.array_equal(old.ids, entry.ids)), None)
        if same is not None:
            if same is keep:
                return False
            entry.pinned = entry.pinned or same.pinned
            self._remove(same)
        self._uses += 1
        entry.used = self._uses
        self._entries.append(entry)
        self._unpin(entry, keep)
        return self._make_room(entry, keep)

    def take(self, entry: Prefix[State]) -> None:
        """Forget an entry; one that is not kept is fine."""
        if entry in self._entries:
            self._remove(entry)

    def evict_one(self, keep: Prefix[State] | None = None) -> Prefix[State] | None:
        """Forget the entry that is missed least, never `keep`; None where nothing may go."""
        victim = self._victim([entry for entry in self._entries if entry is not keep])
        if victim is not None:
            self._remove(victim)
        return victim

    def _remove(self, entry: Prefix[State]) -> None:
        self._entries.remove(entry)
        self._dropped(entry.state)

    def _make_room(self, new: Prefix[State], keep: Prefix[State] | None) -> bool:
        while (overfull := self._overfull()) or self.size > self.budget:
            may_go = [e for e in self._entries if e is not new and e is not keep and not (overfull and e.pinned)]
            victim = self._victim(may_go)
            if victim is None:
                # Only what is in use is left beside it: the new entry gives way.
                self._entries.remove(new)
                return False
            self._remove(victim)
        return True

    def _overfull(self) -> bool:
        return sum(not entry.pinned for entry in self._entries) > self._slots

    def _unpin(self, new: Prefix[State], keep: Prefix[State] | None) -> None:
        """Older shared beginnings beyond their number become ordinary entries; not what is in use."""
        pinned = sorted((e for e in self._entries if e.pinned and e is not new), key=lambda e: (e is not keep, -e.used))
        for entry in pinned[PINNED - new.pinned :]:
            entry.pinned = False

    def _victim(self, entries: list[Prefix[State]]) -> Prefix[State] | None:
        """Unpinned before pinned; the left behind of a conversation that moved on first; then the least worth."""
        return min(entries, key=lambda e: (e.pinned, not self._passed(e), self._worth(e), e.used), default=None)

    def _passed(self, entry: Prefix[State]) -> bool:
        """Whether a later entry goes on from this one."""
        return not entry.pinned and any(
            other.used > entry.used
            and other.length > entry.length
            and np.array_equal(other.ids[: entry.length], entry.ids)
            for other in self._entries
        )

    def _worth(self, entry: Prefix[State]) -> float:
        """Seconds saved per byte, less the longer it was not used."""
        return (entry.seconds or float(entry.length)) / (1 + self._uses - entry.used) / max(1, entry.size)
