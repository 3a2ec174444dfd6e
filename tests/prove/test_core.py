"""The proof of the core: a cell goes on where its drafts were refused too seldom, and says so where that is no help."""

from __future__ import annotations

import pytest

from tests.prove import core
from tests.prove.core import Cell, failures


def laws(monkeypatch: pytest.MonkeyPatch, refused: list[float]) -> None:
    """Laws under which so much of 100 drafts a token is refused, one after another, the last for good."""

    def run(cell: Cell, until: int) -> None:
        share = refused.pop(0) if len(refused) > 1 else refused[0]
        drafted = 100 * (until - cell.report.compared)
        cell.report.drafted += drafted
        cell.report.kept += round(drafted * (1 - share))
        cell.report.compared, cell.report.ties = until, 1

    monkeypatch.setattr(Cell, "_with_a_new_law", run)


def test_a_cell_whose_drafts_are_refused_often_enough_compares_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    laws(monkeypatch, [0.5])
    assert Cell("heads", False, 1).run(1000).compared == 1000


def test_a_cell_goes_on_with_other_laws_until_enough_drafts_were_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    laws(monkeypatch, [0.19, 0.5])
    report = Cell("heads", False, 1).run(1000)
    assert report.compared == 1501 and report.refused_share > core.LEAST_REFUSED


def test_a_cell_that_never_gets_there_ends_and_fails_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    laws(monkeypatch, [0.1])
    report = Cell("heads", False, 1).run(1000)
    assert 3000 <= report.compared < 3600
    assert failures([report], 1000) == ["heads greedy: 10% of the drafts were refused, at least 20% are needed"]
