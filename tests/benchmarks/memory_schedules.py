"""Random schedules of requests under admission and the gate, on bytes that exist as numbers alone.

A schedule plays arrivals, fills and rounds as the scheduler does, and looks after every step whether what is held and
worked with is more than the room there is. Knows no engine: only the arithmetic is tried.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field, replace

from tensorfold.domain.memory.budgets import RESERVE, Budget
from tensorfold.domain.memory.gate import Gate, Stake, admission, gate, held_bytes
from tensorfold.domain.memory.plan import Footprint, MemoryPlan
from tensorfold.domain.memory.state_profile import Growing, Holding, StateProfile
from tensorfold.domain.memory.work import Work

_MOST_STEPS = 2000
_ROWS, _AHEAD = 16, 64
"""A pass and what counts beforehand, small as the rest is: the arithmetic has no scale."""


@dataclass(slots=True)
class _Played:
    stake: Stake
    reply: int

    @property
    def goal(self) -> int:
        return min(self.stake.capacity, self.stake.prompt + self.reply)


@dataclass(slots=True)
class Tally:
    """What schedules came to. `over` counts steps above the room, `stuck` schedules that did not end."""

    schedules: int = 0
    admitted: int = 0
    refused: int = 0
    waited: int = 0
    paused: int = 0
    dropped: int = 0
    ended: int = 0
    over: int = 0
    stuck: int = 0
    worst: float = 0.0
    notes: list[str] = field(default_factory=list)


def memory_of(draw: random.Random) -> MemoryPlan:
    """A model and a budget of any size."""
    row = draw.choice((64, 1 << 10, 65_536))
    growing = [Growing(row, 1, 0)]
    if draw.random() < 0.4:
        growing.append(Growing(row // 2, 1, draw.choice((24, 100))))
    if draw.random() < 0.3:
        growing.append(Growing(row // 4, 4, 0))
    state = StateProfile(
        fixed=draw.choice((0, row * 20)),
        passing=0,
        growing=tuple(growing),
        largest=row // draw.choice((1, 8)),
        holding=Holding("bfloat16", 8, draw.choice((2, 8)), 32),
    )
    work = Work(draw.choice((0, row * 10)), 0, row * 2, draw.choice((0, 1)))
    whole = Footprint(draw.choice((0, 1 << 30)), state, work, _ROWS)
    room = int(row * draw.choice((150, 300, 600)) * (1 + draw.random()))
    return MemoryPlan(Budget(RESERVE + whole.weights + room, "random", 0), whole)


def play(seed: int, tally: Tally) -> None:
    """One schedule to its end."""
    draw = random.Random(seed)
    memory = memory_of(draw)
    window = memory.largest(1 << 10)
    tally.schedules += 1
    if window < 8:
        return
    waiting = deque(_request(draw, index, window) for index in range(draw.randint(2, 6)))
    live: list[_Played] = []
    for _ in range(_MOST_STEPS):
        if not waiting and not live:
            return
        _admit(memory, waiting, live, tally)
        _step(memory, live, draw, tally)
    tally.stuck += 1
    tally.notes.append(f"schedule {seed} did not end")


def _request(draw: random.Random, index: int, window: int) -> _Played:
    total = draw.randint(2, window)
    prompt = draw.randint(1, total - 1)
    stake = Stake(index, 0, prompt, total, draw.random() < 0.4, ahead=_AHEAD)
    return _Played(stake, draw.randint(1, total - prompt))


def _admit(memory: MemoryPlan, waiting: deque[_Played], live: list[_Played], tally: Tally) -> None:
    while waiting and all(played.stake.lane for played in live):
        given = admission(memory, memory.room, waiting[0].stake, [played.stake for played in live])
        if given.short and live:
            tally.waited += 1
            return
        first = waiting.popleft()
        if given.short:
            tally.refused += 1
            continue
        tally.admitted += 1
        first.stake = replace(first.stake, capacity=first.stake.prompt + given.reply)
        live.append(first)


def _step(memory: MemoryPlan, live: list[_Played], draw: random.Random, tally: Tally) -> None:
    decided = gate(memory, memory.room, [played.stake for played in live])
    tally.paused += sum(p.stake.lane and p.stake.index not in decided.run for p in live)
    tally.dropped += len(decided.drop)
    tally.ended += len(decided.end)
    live[:] = [played for played in live if played.stake.index not in decided.end]
    for played in live:
        _apply(played, decided, draw)
    running = [p.stake for p in live if p.stake.index in decided.run]
    used, _ = held_bytes(memory, [played.stake for played in live])
    used += memory.work(max(stake.tokens for stake in running)) if running else 0
    tally.worst = max(tally.worst, used / memory.room)
    if used > memory.room:
        tally.over += 1
        tally.notes.append(f"{used} bytes, the room is {memory.room}")
    live[:] = [played for played in live if played.stake.tokens < played.goal]


def _apply(played: _Played, decided: Gate, draw: random.Random) -> None:
    stake = played.stake
    if stake.index in decided.drop:
        played.stake = replace(stake, lane=False)
    elif stake.index in decided.run:
        # A lane that was given up is read again first; it counts as standing where it stood.
        more = draw.randint(1, _ROWS) if stake.tokens >= stake.prompt else min(_ROWS, stake.prompt - stake.tokens)
        tokens = min(played.goal, stake.tokens + more)
        played.stake = replace(stake, tokens=tokens, lane=True)
