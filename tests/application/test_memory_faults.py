"""Faults planted into pauses, replays and the gate: each one is noticed by the checks that sound code passes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tensorfold.application.engine import Engine
from tensorfold.application.lanes import Lanes
from tensorfold.application.live import Live
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.memory import gate
from tensorfold.domain.memory.plan import MemoryPlan
from tests.application.house import Read, read
from tests.application.memory_house import Metered, metered
from tests.application.test_memory import LAW, LONG, open_ended
from tests.benchmarks.memory_schedules import Tally, play
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import serial_references


def squeezed(model: HashModel, wait: float = 30.0) -> tuple[list[Read], Metered]:
    """Four open-ended streams where little more than one fits: some of them give their lanes up."""
    with metered(model, 70, ahead=4, max_tokens=60, settings=EngineSettings(parallel=4)) as house:
        got = [read(g, wait) for g in [house.scheduler.submit(open_ended(case)) for case in LONG]]
    return got, house


def differ(got: list[Read]) -> bool:
    return any(tuple(one.ids) != r.tokens for one, r in zip(got, serial_references(LAW, LONG), strict=True))


def test_without_a_fault_nothing_differs_though_lanes_are_given_up() -> None:
    got, house = squeezed(HashModel(LAW))
    assert not differ(got) and house.scheduler.counters.dropped > 0


def test_a_replay_that_is_sent_twice_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    drop = Engine.drop

    def rewound(self: Engine, live: Live, **options: bool) -> None:
        drop(self, live, **options)
        stream = live.stream
        stream.tokens, stream.emitted_count, stream.absorbed = list(stream.prompt), 0, 0
        live.replay_to = 0

    monkeypatch.setattr(Engine, "drop", rewound)
    got, _ = squeezed(HashModel(LAW))
    assert differ(got)


@pytest.mark.slow
def test_a_paused_stream_that_is_forgotten_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scheduler, "_unpark", lambda self, running: None)
    with pytest.raises(AssertionError, match="nothing came in time"):
        squeezed(HashModel(LAW), wait=0.5)


def test_a_replay_into_another_state_is_noticed_where_its_draws_are_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Forgetful(HashModel):
        """Lanes after the first four begin with another state."""

        opened = 0

        def open(self, capacity: int) -> int:
            lane = super().open(capacity)
            self.opened += 1
            self._lanes[lane].state ^= self.opened > len(LONG)
            return lane

    replay = Lanes._replay

    def unchecked(self: Lanes, live: Live) -> None:
        live.forced = True
        replay(self, live)

    monkeypatch.setattr(Lanes, "_replay", unchecked)
    got, _ = squeezed(Forgetful(LAW))
    assert differ(got)


@pytest.mark.parametrize("forgotten", ["held", "work", "growth"])
@pytest.mark.slow
def test_a_gate_that_forgets_bytes_is_noticed(forgotten: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = gate.needed

    def less(memory: MemoryPlan, running: Sequence[gate.Stake], held: Sequence[gate.Stake] = ()) -> int:
        if forgotten == "held":
            return needed(memory, running)
        if forgotten == "work":
            return needed(memory, running, held) - memory.work(max((s.reserved() for s in running), default=1))
        return sum(memory.lane(s.tokens, s.capacity) for s in (*running, *held))

    monkeypatch.setattr(gate, "needed", less)
    tally = Tally()
    for seed in range(60):
        play(seed, tally)
    assert tally.over > 0
