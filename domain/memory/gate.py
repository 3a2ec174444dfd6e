"""Who may hold a lane and who may run: admission of a request, and the gate before each round. Arithmetic only.

A stream whose client named a reply limit counts with all of it; another with its next `AHEAD` tokens, and the gate
watches it. Invariant: whatever runs after a decision fits the room that the decision was given, and so long as anything
fits at all, something runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tensorfold.domain.memory.plan import MemoryPlan

AHEAD = 2048
"""Tokens of an unlimited reply that count beforehand."""


@dataclass(frozen=True, slots=True)
class Stake:
    """One stream's claim. Older streams have a lower `index`.

    `tokens` stand in its lane, or would if it had its `lane`; `prompt` and `capacity` (prompt and reply limit) are its
    own. `whole`: the reply limit was asked for, so all of it is kept free, else its next `ahead` tokens. The lane of a
    stream that is read again lacks `behind` of its tokens still; rows that were not kept may have made its buffers
    large enough for `spare` tokens more.
    """

    index: int
    tokens: int
    prompt: int
    capacity: int
    whole: bool
    lane: bool = True
    ahead: int = AHEAD
    behind: int = 0
    spare: int = 0

    def reserved(self, times: int = 1) -> int:
        """Tokens that it counts with while it runs, with so many `times` those ahead."""
        ahead = times * self.ahead
        return self.capacity if self.whole else min(self.capacity, max(self.prompt, self.tokens) + ahead)


@dataclass(frozen=True, slots=True)
class Gate:
    """A decision, by index. `run`: may take rounds and slices. `drop`: gives its lane up, to be made anew later.

    `resume`: gets a lane again. `end`: cannot go on, whoever leaves. Who is named nowhere keeps its lane and waits.
    """

    run: frozenset[int]
    drop: tuple[int, ...] = ()
    resume: tuple[int, ...] = ()
    end: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Admission:
    """What a request may have. `reply` tokens at most: less than asked for only where no limit was named.

    `short` bytes lack, 0 when it is admitted. `largest` is the largest prompt and reply that would be taken, told where
    nothing else holds a lane.
    """

    reply: int
    short: int
    largest: int


def admission(memory: MemoryPlan, room: int, ask: Stake, streams: Sequence[Stake]) -> Admission:
    """Whether a new request fits beside the streams there are, within `room` bytes for lanes and work."""
    short = needed(memory, [*streams, ask]) - room
    reply = ask.capacity - ask.prompt
    if short <= 0:
        return Admission(reply, 0, ask.capacity)
    if streams:
        # It waits and is asked about again soon: what would fit an empty server is not looked for each time.
        return Admission(reply, short, 0)
    fitting = _largest(memory, room, ask.capacity)
    if not ask.whole and fitting > ask.prompt:
        return Admission(fitting - ask.prompt, 0, fitting)
    return Admission(reply, short, fitting)


def gate(memory: MemoryPlan, room: int, streams: Sequence[Stake]) -> Gate:
    """Who runs: all if they fit, else without the newest; then lanes are given up, and at last a stream ends."""
    order = sorted(streams, key=lambda stake: stake.index)
    held = [stake for stake in order if stake.lane]
    waiting = [stake for stake in order if not stake.lane]
    if not held:
        return _revive(memory, room, [], waiting)
    running = list(held)
    while len(running) > 1 and needed(memory, running, held) > room:
        running.pop()
    if needed(memory, running, held) <= room:
        if len(running) == len(held) and waiting:
            return _revive(memory, room, held, waiting)
        return Gate(_indices(running))
    return _without_lanes(memory, room, held)


def needed(memory: MemoryPlan, running: Sequence[Stake], held: Sequence[Stake] = ()) -> int:
    """Bytes of lanes and work while `running` go on to what they count with, and others of `held` stay as they are."""
    if not running and not held:
        return 0
    names = _indices(running)
    lanes = sum(memory.lane(stake.reserved(), stake.capacity) for stake in running)
    lanes += sum(memory.lane(stake.tokens + stake.spare, stake.capacity) for stake in held if stake.index not in names)
    return lanes + memory.work(max((stake.reserved() for stake in running), default=1))


def held_bytes(memory: MemoryPlan, streams: Sequence[Stake]) -> tuple[int, int]:
    """Bytes of the lanes as they stand: at least, and at most where rows that were not kept made their buffers grow."""
    held = [(stake.tokens - stake.behind, stake) for stake in streams if stake.lane]
    least = sum(memory.lane(tokens, stake.capacity) for tokens, stake in held)
    return least, sum(memory.lane(tokens + stake.spare, stake.capacity) for tokens, stake in held)


def _without_lanes(memory: MemoryPlan, room: int, held: list[Stake]) -> Gate:
    """The oldest alone, with as few lanes given up as make it fit."""
    oldest, others = held[0], held[1:]
    dropped: list[int] = []
    while others and needed(memory, [oldest], [oldest, *others]) > room:
        dropped.append(others.pop().index)
    if needed(memory, [oldest], [oldest, *others]) <= room or _next(memory, oldest) <= room:
        return Gate(_indices([oldest]), tuple(dropped))
    return Gate(frozenset(), tuple(dropped), end=(oldest.index,))


def _next(memory: MemoryPlan, stake: Stake) -> int:
    """Bytes of a stream that is alone and takes one pass."""
    tokens = min(stake.capacity, stake.tokens + memory.footprint.rows)
    return memory.lane(tokens, stake.capacity) + memory.work(tokens)


def _revive(memory: MemoryPlan, room: int, held: list[Stake], waiting: list[Stake]) -> Gate:
    """Lanes for streams that gave theirs up, oldest first, where they will not be lost soon: twice their share fits."""
    names = _indices(held)
    if not waiting:
        return Gate(names)
    first = waiting[0]
    ahead = memory.lane(first.reserved(2), first.capacity) - memory.lane(first.reserved(), first.capacity)
    if needed(memory, [*held, first]) + ahead <= room:
        return Gate(names | {first.index}, resume=(first.index,))
    if held:
        return Gate(names)
    if needed(memory, [first]) <= room or _next(memory, first) <= room:
        return Gate(frozenset({first.index}), resume=(first.index,))
    return Gate(frozenset(), end=(first.index,))


def _largest(memory: MemoryPlan, room: int, most: int) -> int:
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if memory.request(middle) <= room else (low, middle - 1)
    return low


def _indices(stakes: Sequence[Stake]) -> frozenset[int]:
    return frozenset(stake.index for stake in stakes)
