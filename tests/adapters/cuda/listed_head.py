"""A draft head that hashes what it absorbed, in a pool by lane slot and kept state, and drafts from nothing else.

What it is queued to absorb goes into a second pool, which a lane reads from once it takes that: as rows of a real head
lie in its memory before the host knows whether they stand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tensorfold.adapters.cuda.heads.head import Behind, Found, KeptRows
from tensorfold.adapters.cuda.lane_book import LaneEntry
from tensorfold.adapters.cuda.rows import Tensor
from tensorfold.application.ports.target_model import Chain, HeadLimits, ProposeSpec
from tensorfold.domain.families.state import StateEntry
from tensorfold.domain.memory.cuda_holding import STATES, Room
from tests.adapters.cuda.listed_decoder import VOCABULARY, hashes, mixed_int, noise

TAP, MOST = 2, 3
_WHOLE = 2**64 - 1


class ListedHead:
    """`reach` is called before any work, with its name; a test may raise from it."""

    taps = frozenset({TAP})
    limits = HeadLimits("chain", MOST, MOST, title="listed head")
    entries = (StateEntry("drafter.listed.hidden", "hidden", "int64", (1,)),)

    def __init__(self, room: Room) -> None:
        self.room = room
        self.states = hashes(noise(2, room.lanes + room.kept + 1))
        self.reach: Callable[[str], None] = lambda name: None

    def open(self, entry: LaneEntry) -> ListedHeadLane:
        """Empty state of a lane."""
        self.reach("open")
        lane = ListedHeadLane(self, entry)
        self.states[lane.at] = 0
        return lane

    def queue(self, behind: Sequence[Behind], found: Found) -> list[ListedQueued | None]:
        """Absorb what was found, where no lane reads yet."""
        self.reach("queue")
        made: list[ListedQueued | None] = []
        for each in behind:
            count, pending, *path = found.kept[each.line].tolist()
            rows = [each.start + row for row in path[:count]]
            tokens = found.tokens[rows].tolist()
            state = absorbed(int(self.states[each.lane.at]), tokens, hashes(found.taps[TAP][rows]).tolist())
            self.states[each.lane.other] = state
            made.append(ListedQueued(each.lane, drafted(state, replace(each.spec, pending=pending)), each.spec))
        return made

    def move(self, moves: Tensor) -> None:
        """Nothing."""

    def take(self, kept: Sequence[KeptRows], taps: Mapping[int, Any]) -> None:
        """Take in kept rows of a launch."""
        for each in kept:
            each.lane.absorb(each.tokens, {TAP: taps[TAP][each.rows]})

    def propose(self, asked: Sequence[tuple[ListedHeadLane, ProposeSpec]]) -> list[Chain]:
        """Drafts that follow from everything that each lane absorbed."""
        self.reach("propose")
        return [drafted(int(self.states[lane.at]), spec) for lane, spec in asked]


@dataclass(frozen=True, slots=True)
class ListedQueued:
    """Drafts of one lane."""

    lane: ListedHeadLane
    chain: Chain
    spec: ProposeSpec

    def take(self, tokens: tuple[int, ...]) -> None:
        """Read from the second pool now."""
        self.lane.turn()

    def drafts(self, spec: ProposeSpec) -> Chain | None:
        """Those that were queued, if as many or fewer are asked for."""
        if spec.sampling != self.spec.sampling or spec.depth > self.spec.depth:
            return None
        return Chain(self.chain.tokens[: spec.depth], self.chain.confidence[: spec.depth])


class ListedHeadLane:
    """One lane's state."""

    def __init__(self, head: ListedHead, entry: LaneEntry) -> None:
        self._head, room = head, head.room
        place = entry.slot if entry.slot >= 0 else room.lanes + entry.committed - STATES * room.lanes
        self.at, self.other = (0, place), (1, place)

    def turn(self) -> None:
        """The pools change their parts."""
        self.at, self.other = self.other, self.at

    def absorb(self, tokens: tuple[int, ...], taps: Mapping[int, Any]) -> None:
        """Take in kept rows."""
        self._head.reach("absorb")
        rows = hashes(taps[TAP])
        assert len(rows) == len(tokens)
        self._head.states[self.at] = absorbed(int(self._head.states[self.at]), tokens, rows.tolist())

    def fork(self, entry: LaneEntry) -> ListedHeadLane:
        """A copy."""
        self._head.reach("fork")
        twin = ListedHeadLane(self._head, entry)
        self._head.states[twin.at] = self._head.states[self.at]
        return twin

    def export(self) -> tuple[bytes, ...]:
        """The state."""
        self._head.reach("export")
        return (self._head.states[self.at].tobytes(),)

    def load(self, parts: Sequence[bytes], length: int) -> None:
        """Write it."""
        self._head.reach("load")
        self._head.states[self.at] = np.frombuffer(parts[0], np.uint64)[0]


def absorbed(state: int, tokens: Sequence[int], rows: Sequence[int]) -> int:
    """A head's state behind further tokens and their tapped rows."""
    for token, row in zip(tokens, rows, strict=True):
        state = mixed_int(state + 0x1234567 * token + row & _WHOLE)
    return state


def drafted(state: int, spec: ProposeSpec) -> Chain:
    """What a head of this state drafts."""
    tokens = tuple(mixed_int(state + spec.pending + depth) % VOCABULARY for depth in range(spec.depth))
    return Chain(tokens, (0.5,) * spec.depth)
