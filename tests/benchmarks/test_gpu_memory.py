"""What the memory part prints before it loads anything: windows, a refusal that names one that fits, two variables."""

from __future__ import annotations

import pytest

from tensorfold.domain.memory.budgets import Card
from tests.benchmarks.gpu_memory import GIB, estimated, footprint, planned, windows
from tests.synthetic.true_models import NAMES, true_model

CARD = Card(total=150_754_820_096, free=149_000_000_000, available=120 * GIB, unified=False)
"""An H200's bytes."""


@pytest.mark.parametrize("name", NAMES)
def test_every_models_windows_fit_its_card_and_a_refusal_names_one_that_does(name: str) -> None:
    lines: list[str] = []
    made = windows(true_model(name), CARD, lines.append)
    assert made.chosen["8192"] == 8192
    assert made.chosen["default"] <= made.chosen["0"] <= made.native
    assert made.estimate["0"] * GIB < CARD.free
    assert 2 <= made.after_refusal < made.native
    assert f"--context {made.after_refusal} fits" in made.refused
    assert any("--context 0:" in line for line in lines)


def test_the_default_of_nemotron_is_at_most_16384_tokens() -> None:
    model = true_model("nemotron")
    assert planned(model, footprint(model), CARD, None).window.tokens == 16_384


def test_an_estimate_counts_weights_and_every_page() -> None:
    model = true_model("llama")
    found = footprint(model)
    small, large = (planned(model, found, CARD, tokens) for tokens in (4096, 8192))
    pages = large.pools.pages - small.pools.pages
    assert found.pools is not None
    assert estimated(large) - estimated(small) == pytest.approx(pages * found.pools.page, rel=0.05)
    assert estimated(small) > found.weights
