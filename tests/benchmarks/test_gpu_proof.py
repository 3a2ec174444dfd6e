"""The proof that runs on a card, over a hash model here: what is sound passes, what is planted is noticed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tensorfold.application.ports.target_model import Draws, RoundBatch, Ticket
from tests.benchmarks import gpu_proof_runs
from tests.benchmarks.gpu_beside import FailedError
from tests.benchmarks.gpu_proof import FAULTS, Proved, cases, caught, crowd, prove, wrong
from tests.benchmarks.gpu_proof_runs import Done, Outcome, Task, _done, checked
from tests.fakes.hash_head import HashHead
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.wrapped_model import WrappedModel


def hash_model(**changes: Any) -> HashModel:
    return HashModel(HashLaw(vocabulary=512, salt=7), one_thread=False, **{"head": HashHead(), **changes})


class Broken(WrappedModel):
    """Rows of launches of more than `rows` rows have other bits."""

    def __init__(self, rows: int) -> None:
        super().__init__(hash_model())
        self._rows, self._wide = rows, set[int]()

    def launch(self, batch: RoundBatch) -> Ticket:
        ticket = self.inner.launch(batch)
        if batch.rows > self._rows:
            self._wide.add(ticket.id)
        return ticket

    def collect(self, ticket: Ticket) -> Draws:
        draws = self.inner.collect(ticket)
        if ticket.id not in self._wide or not draws.prints:
            return draws
        prints = tuple(None if row is None else [one ^ 1 for one in row] for row in draws.prints)
        return replace(draws, prints=prints)


@pytest.mark.slow
def test_a_sound_model_is_proved_over_as_many_tokens_as_are_asked_for(tmp_path: Path) -> None:
    proved = prove(hash_model(), tmp_path, 5, 2_000)
    assert proved.lacks() == []
    assert proved.compared >= 2_000
    assert proved.differences == 0
    assert min(proved.kept, proved.refused, proved.copied, proved.resumed) > 100


def test_eight_streams_share_rounds_with_chains_and_trees_in_company_that_changes() -> None:
    model = hash_model()
    known = cases(model, 2, 8)
    assert sum(not case.sampling.greedy for case in known) == 4
    for streams in (4, 8):
        row = crowd(model, known, streams, turns=2)
        assert row.differences == 0
        assert row.compared == 2 * sum(len(case.reply) for case in known)
        assert min(row.kept, row.refused) > 100


def test_a_fault_in_wide_launches_is_caught_by_a_sound_models_replies_and_told_in_words() -> None:
    known = cases(hash_model(), 3, 8)
    assert caught(Broken(4), known)
    assert not caught(hash_model(), known)
    assert any("8 streams" in words for words in wrong(crowd(Broken(4), known, 8)))


def test_a_twin_that_computes_otherwise_is_noticed_and_so_is_a_fault_that_nobody_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = HashModel(HashLaw(vocabulary=512, salt=8), one_thread=False)
    for twin, differs in ((hash_model(), False), (other, True)):
        models = SimpleNamespace(
            eager=lambda model, twin=twin: twin,
            headless=lambda model: model,
            faulty=lambda model, fault: Broken(4) if fault == "width" else model,
        )
        monkeypatch.setitem(sys.modules, "tests.benchmarks.gpu_planting", models)  # which needs torch
        monkeypatch.setattr("tests.benchmarks.gpu_planting", models, raising=False)
        done = Done()
        checked(hash_model(), 1, done)
        assert done.eager > 300
        assert (done.eager_differences > 0, bool(done.proved.reasons)) == (differs, differs)
        assert set(done.caught) == set(FAULTS)
        assert done.caught["width"]
        if not differs:
            assert not done.caught["stale"]


def test_what_processes_found_is_added_up_and_one_that_failed_is_told() -> None:
    outcome, said = Outcome(), list[str]()
    good = Proved(compared=600, kept=50, refused=50, copied=9)
    outcome.take("tiny", Done(good, dict.fromkeys(FAULTS, True), eager=10), said.append)
    outcome.take("tiny", Done(good), said.append)
    assert outcome.passed(1_200)
    assert not outcome.passed(1_201)
    outcome.take("other", Done(good), said.append)
    assert "the planted fault 'other width' was not caught" in outcome.lacks(1_000)
    outcome.take("tiny", FailedError("Traceback\nValueError: no card"), said.append)
    assert "FAILED: tiny: a process failed: ValueError: no card" in outcome.words(1_000)
    assert outcome.proved["tiny"].compared == 1_200


def test_a_proof_without_refused_drafts_or_copies_is_none() -> None:
    assert len(Proved(compared=10, kept=100, refused=10).lacks()) == 2


def test_a_proof_that_raises_keeps_what_was_compared_before(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def made(home: Path) -> Iterator[Any]:
        yield hash_model()

    def fails(model: Any, folder: Path, *rest: Any, into: Proved, **how: Any) -> None:
        into.compared += 900
        raise MemoryError("no room")

    monkeypatch.setattr(gpu_proof_runs, "prove", fails)
    done = _done(Task("any", "", 1, 10, 0.0), made)
    assert done.proved.compared == 900
    assert done.proved.reasons == ["MemoryError: no room"]
    assert done.seconds > 0
