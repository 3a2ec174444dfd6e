"""The proof that runs on a card, over a hash model here: what is sound passes, what is planted is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorfold.application.ports.target_model import Draws, RoundBatch, Ticket
from tests.benchmarks.gpu_proof import Proved, caught, crowd, prove, same
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


@pytest.mark.slow
def test_a_fault_in_wide_launches_is_caught_and_a_sound_model_is_not() -> None:
    assert caught(Broken(4), 3)
    assert not caught(hash_model(), 3)


def test_eight_streams_share_rounds_with_chains_and_trees() -> None:
    row = crowd(hash_model(), 2, 8)
    assert row.differences == 0
    assert row.compared > 300
    assert row.refused > 0
    assert row.kept > 0


@pytest.mark.slow
def test_a_twin_that_computes_otherwise_is_noticed() -> None:
    assert same(hash_model(), hash_model(), 1).differences == 0
    assert same(hash_model(), HashModel(HashLaw(vocabulary=512, salt=8), one_thread=False), 1).differences > 0


def test_a_proof_without_refused_drafts_or_copies_is_none() -> None:
    assert len(Proved(compared=10, kept=100, refused=10).lacks()) == 2
