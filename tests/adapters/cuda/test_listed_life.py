"""Lives of lanes on a card, without one: whatever happens, a row draws what serial steps of its own history draw."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")

from tests.adapters.cuda.listed_life import Life
from tests.adapters.cuda.listed_model import listed


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [False, True], ids=["layer by layer", "graphs"])
@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_every_row_draws_what_its_own_history_says(seed: int, graphs: bool) -> None:
    life = Life(listed(graphs=graphs, head=seed % 2 == 0, streams=4, pages=9 if seed % 4 > 1 else None), seed)
    life.run(120)
    assert life.rows > 150 and life.adopted > 0
    drafts = life.model.drafts_ahead
    assert (drafts.used > 0) == (seed % 2 == 0)
