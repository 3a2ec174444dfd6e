"""The proof of kept prompts has teeth: each planted fault is caught, and without one it holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensorfold.application import snapshots
from tensorfold.application.replies import Landed
from tensorfold.application.scheduler import Scheduler
from tensorfold.domain.prompts import chunks, retained
from tensorfold.domain.prompts.chunks import ChunkPlan, slices
from tensorfold.domain.scheduling.credit import DecodeCredit
from tests.domain.prompts.prompts import prompt as laden
from tests.prove.prompts import RULE, Cell, CellReport, failures, planned, shares

Plant = Callable[[pytest.MonkeyPatch], None]


def past_an_edit(patch: pytest.MonkeyPatch) -> None:
    """Of the ids that a state stands for only the first half is compared."""

    def fits(kept: Any, starts: Any, ids: Any, plan: ChunkPlan) -> bool:
        half = len(kept) // 2
        return plan.cuts_at(len(kept)) and bool(np.array_equal(kept[:half], ids[:half]))

    patch.setattr(retained, "fits_plan", fits)
    patch.setattr(snapshots, "fits_plan", fits)


def chunks_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A state is taken for another with the same ids, whatever chunks it was read in."""

    def fits(kept: Any, starts: Any, ids: Any, plan: ChunkPlan) -> bool:
        return bool(len(kept) < len(ids) and np.array_equal(kept, ids[: len(kept)]))

    def spans(self: ChunkPlan, resumed: int = 0) -> Any:
        return slices((resumed, self.end), self.slice_rows)

    patch.setattr(retained, "fits_plan", fits)
    patch.setattr(ChunkPlan, "spans", spans)


def off_by_one(patch: pytest.MonkeyPatch) -> None:
    """Chunks begin one id behind where they should."""
    real = chunks.ChunkRule._starts

    def moved(self: Any, points: Any, end: int) -> Any:
        return real(self, [point + 1 for point in points], end)

    patch.setattr(chunks.ChunkRule, "_starts", moved)


def sent_twice(patch: pytest.MonkeyPatch) -> None:
    """What a stream had sent before it yielded is sent again when it comes back."""
    real = Scheduler._unpark

    def unpark(self: Scheduler, running: Any) -> None:
        real(self, running)
        if said := tuple(running.live.stream.tokens[len(running.live.stream.prompt) :]):
            running.generation.deliver(Landed(said))

    patch.setattr(Scheduler, "_unpark", unpark)


def replay_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A stream that comes back goes on behind its prompt, as if it had said nothing."""
    from tensorfold.application.lanes import Lanes

    real = Lanes.drop

    def drop(self: Lanes, live: Any, *, keep: bool = False) -> None:
        real(self, live, keep=keep)
        live.replay_to = 0

    patch.setattr(Lanes, "drop", drop)


@pytest.mark.parametrize(
    ("plant", "cell"),
    [
        (past_an_edit, "resumed"),
        (chunks_forgotten, "sliced"),
        (off_by_one, "resumed"),
        (sent_twice, "preempted"),
        (replay_forgotten, "preempted"),
    ],
    ids=lambda value: value.__name__ if callable(value) else value,
)
@pytest.mark.slow
def test_a_planted_fault_is_caught(plant: Plant, cell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert Cell(cell, 1).run(60_000).differences


def test_debts_that_are_not_carried_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def slice_took(self: DecodeCredit, seconds: float) -> None:
        self._left, self._rounds = self._share * seconds, 0

    monkeypatch.setattr(DecodeCredit, "slice_took", slice_took)
    assert shares(1, 3)


def test_replies_get_their_share_without_a_fault() -> None:
    assert not shares(2, 3)


@pytest.mark.parametrize("cell", ["resumed", "restarted", "preempted", "sliced"])
@pytest.mark.slow
def test_a_short_proof_holds(cell: str) -> None:
    report = Cell(cell, 3).run(1_000)
    assert not report.differences, report.first
    assert report.compared >= 1_000 and report.spared


def test_a_proof_that_saw_nothing_fails() -> None:
    empty = [CellReport(cell) for cell in ("preempted", "restarted", "sliced")]
    assert len(failures(empty, 100)) == 2 * 3 + 3


def test_the_proofs_planner_and_the_products_agree() -> None:
    import random

    random_ = random.Random(4)
    for _ in range(200):
        ids = laden(random_, random_.randrange(1, 150))
        assert list(RULE.plan(ids).starts) == planned(ids)
