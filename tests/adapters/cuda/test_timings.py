"""Times of launches measured at a load: near the true ones however noisy the machine, few calls, nothing left open."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tensorfold.adapters.cuda import timings
from tensorfold.application.ports.target_model import Chain, Lattice, ProposeSpec
from tests.fakes.hash_head import HashDrafter, HashHead
from tests.fakes.hash_model import HashModel
from tests.fakes.paced_model import PacedModel


class Machine(PacedModel):
    """A model on a clock of its own: rows and drafts take known times, and now and then something comes between."""

    def __init__(self, inner: HashModel, block: bool, noise: float) -> None:
        self.now, self.calls = 0.0, 0
        self._block, self._noise, self._chance = block, noise, random.Random(3)
        super().__init__(inner, self.wait, lambda rows: self.rows_ms(rows) / 1e3, 0.0001)

    def wait(self, seconds: float) -> None:
        self.calls += 1
        late = self._noise * self._chance.random() * 1e-3 if self._chance.random() < 0.3 else 0.0
        self.now += seconds + late

    def rows_ms(self, rows: int) -> float:
        return 2.0 + 0.1 * rows

    def head_ms(self, depth: int) -> float:
        return 1.0 if self._block else 0.5 + 0.25 * depth

    def propose(self, specs: Sequence[ProposeSpec]) -> Sequence[Chain | Lattice | None]:
        self.wait(self.head_ms(specs[0].depth) / 1e3)
        return super().propose(specs)


def measured(monkeypatch: Any, machine: Machine) -> Any:
    monkeypatch.setattr(timings, "perf_counter", lambda: machine.now)
    return timings.measure(machine)


@pytest.mark.parametrize("noise", [0.0, 5.0])
def test_times_are_those_of_the_machine_whatever_comes_between(monkeypatch: Any, noise: float) -> None:
    machine = Machine(HashModel(head=HashHead((0.5,) * 8)), block=False, noise=noise)
    costs = measured(monkeypatch, machine)
    assert [rows for rows, _ in costs.rows_ms] == [rows for rows in timings.ROWS if rows <= machine.limits.chain_width]
    for rows, ms in costs.rows_ms:
        assert ms == pytest.approx(machine.rows_ms(rows), abs=1e-6)
    assert costs.head_ms == pytest.approx([machine.head_ms(depth) for depth in range(1, 9)])
    assert machine.inner.lanes() == () and machine.calls < 200


def test_a_block_is_timed_once_for_all_its_depths(monkeypatch: Any) -> None:
    machine = Machine(HashModel(head=HashDrafter((0.5,) * 15)), block=True, noise=5.0)
    assert measured(monkeypatch, machine).head_ms == pytest.approx([1.0] * 15)


def test_a_model_of_few_tokens_is_measured_too(monkeypatch: Any) -> None:
    machine = Machine(HashModel(head=HashHead((0.5,) * 3), context=30, chain_width=16), block=False, noise=0.0)
    costs = measured(monkeypatch, machine)
    assert costs.head_ms == pytest.approx([machine.head_ms(depth) for depth in range(1, 4)])
    assert costs.rows_ms[-1] == (16, pytest.approx(machine.rows_ms(16)))


def test_without_a_head_nothing_is_said_of_one(monkeypatch: Any) -> None:
    assert measured(monkeypatch, Machine(HashModel(), block=False, noise=0.0)).head_ms == ()
