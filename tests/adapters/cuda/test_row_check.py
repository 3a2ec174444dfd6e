"""The load check narrows what does not hold, and nothing else; the measuring of launches finds what they take."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tensorfold.adapters.cuda import timings
from tensorfold.adapters.cuda.row_check import LONG, RowCheck
from tensorfold.adapters.cuda.rows import PAGE
from tensorfold.application.ports.target_model import (
    Draws,
    LaneWindow,
    ModelLimits,
    Path,
    RoundBatch,
    TargetModel,
    Ticket,
)
from tests.adapters.cuda.listed_model import CONTEXT, listed
from tests.fakes.wrapped_model import WrappedModel


class Drifting(WrappedModel):
    """Fingerprints of windows that `drifts` names are off by one."""

    def __init__(self, inner: TargetModel) -> None:
        super().__init__(inner)
        self._batches: dict[int, RoundBatch] = {}
        self.cut: set[int] = set()

    def drifts(self, window: LaneWindow, batch: RoundBatch) -> bool:
        return False

    def launch(self, batch: RoundBatch) -> Ticket:
        ticket = super().launch(batch)
        self._batches[ticket.id] = batch
        return ticket

    def keep(self, ticket: Ticket, paths: Any) -> None:
        path: Path = paths[0]
        window = self._batches[ticket.id].windows[0]
        if 0 < len(path) < len(window.window):
            self.cut.add(window.lane)
        super().keep(ticket, paths)

    def collect(self, ticket: Ticket) -> Draws:
        draws, batch = super().collect(ticket), self._batches.get(ticket.id)
        if batch is None:
            return draws
        pairs = zip(draws.prints, batch.windows, strict=False)
        off = [None if row is None else [p + self.drifts(window, batch) for p in row] for row, window in pairs]
        return replace(draws, prints=tuple(off))


class Narrow(WrappedModel):
    """A model of a few tokens' window, or of another width."""

    def __init__(self, inner: TargetModel, **limits: Any) -> None:
        super().__init__(inner)
        self._own = replace(inner.limits, **limits)

    @property
    def limits(self) -> ModelLimits:
        return self._own

    def open(self, capacity: int) -> int:
        assert 0 < capacity <= self._own.context
        return super().open(capacity)


class Wide(Drifting):
    def drifts(self, window: LaneWindow, batch: RoundBatch) -> bool:
        return window.window.is_chain and len(window.window) > 5


class WideBehindAPage(Drifting):
    def drifts(self, window: LaneWindow, batch: RoundBatch) -> bool:
        return len(window.window) > 11 and window.position > PAGE


class Branched(Drifting):
    def drifts(self, window: LaneWindow, batch: RoundBatch) -> bool:
        return not window.window.is_chain


class LargeBranched(Drifting):
    def drifts(self, window: LaneWindow, batch: RoundBatch) -> bool:
        return not window.window.is_chain and len(window.window) == 16


class Shared(Drifting):
    def drifts(self, window: LaneWindow, batch: RoundBatch) -> bool:
        return len(batch.windows) > 1


class Cut(Drifting):
    def drifts(self, window: LaneWindow, batch: RoundBatch) -> bool:
        return window.lane in self.cut


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "held", "note"),
    [
        (Drifting, (64, 16, True), ""),
        (Wide, (5, 5, True), "at most 5 rows"),
        (WideBehindAPage, (11, 11, True), "at most 11 rows"),
        (Branched, (64, 1, True), "Drafts are chains"),
        (LargeBranched, (64, 1, True), "Drafts are chains"),
        (Shared, (64, 16, False), "do not share"),
        (Cut, (1, 1, True), "Nothing is drafted"),
    ],
)
def test_what_does_not_hold_is_narrowed_and_said(kind: type[Drifting], held: tuple[int, int, bool], note: str) -> None:
    made = listed(graphs=True)
    # The long prompt is read where something hangs on it alone.
    context = CONTEXT if kind is WideBehindAPage else 600
    allowed = RowCheck(kind(Narrow(made.model, context=context)), lambda line: None).run()
    assert (allowed.chain, allowed.tree, allowed.shares) == held
    assert [note in each for each in allowed.notes] == ([True] if note else [])
    assert made.model.lanes() == ()


@pytest.mark.parametrize("context", [4, 16, 37, 38, 39, 60, 101, 102])
def test_any_window_has_room_for_the_check_and_the_measuring(context: int) -> None:
    model = Narrow(listed().model, context=context)
    allowed = RowCheck(model, lambda line: None).run()
    assert 1 <= allowed.chain <= max(1, context - 3) and allowed.notes == []
    costs = timings.measure(Narrow(model, chain_width=allowed.chain, context=context))
    assert [rows for rows, _ in costs.rows_ms] == [rows for rows in timings.ROWS if rows <= allowed.chain]


@pytest.mark.slow
@pytest.mark.parametrize("pages", [4, 7, 10])
def test_pools_with_pages_for_few_lanes_are_checked_all_the_same(pages: int) -> None:
    made = listed(streams=3, pages=pages)
    free = made.held
    assert RowCheck(made.model, lambda line: None).run().notes == []
    assert made.held == free


def test_the_long_prompt_ends_where_windows_cross_a_page() -> None:
    assert LONG < 2 * PAGE < LONG + 32 and LONG + 64 < CONTEXT


def test_measured_rounds_of_one_row_are_queued_ahead_and_no_others_wait_for_them() -> None:
    made = listed(graphs=True)
    ahead: list[int] = []
    taken: list[int] = []
    look, run = made.model._look_ahead, made.model._run

    def looked(launched: Any, rows: int) -> None:
        ahead.append(rows)
        look(launched, rows)

    def ran(windows: Any, rows: int, *, alone: bool) -> Any:
        taken.append(rows)
        return run(windows, rows, alone=alone)

    made.model._look_ahead, made.model._run = looked, ran  # type: ignore[method-assign]
    timings.measure(made.model)
    assert set(ahead) == {1} and len(ahead) >= timings.TURNS
    # The last of them is the one that nobody asks for; nothing of the model is timed behind it.
    assert taken.count(1) == timings.WARM + timings.TURNS - (len(ahead) - 1) and taken[-1] == 1
