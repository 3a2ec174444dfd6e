"""Chances are mapped to what landed: the identity without evidence, never falling, close to the truth with it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.calibration import EDGES, Calibration

chances = st.floats(0.0, 1.0)
drafts = st.lists(st.lists(st.tuples(chances, st.booleans()), max_size=15), max_size=30)


def test_without_evidence_chances_stay_as_given() -> None:
    given_chances = [0.0, 0.01, 0.3, 0.5, 0.77, 0.95, 1.0]
    assert Calibration().chances(given_chances) == pytest.approx(given_chances)
    assert Calibration().chances([]) == ()


@settings(derandomize=True, deadline=None, max_examples=150)
@given(drafts, st.lists(chances, min_size=1, max_size=30))
@pytest.mark.slow
def test_the_order_of_chances_stays_and_none_leaves_its_range(
    seen: list[list[tuple[float, bool]]], asked: list[float]
) -> None:
    calibration = Calibration()
    for window in seen:
        calibration.observe([chance for chance, _ in window], [came for _, came in window])
    falling = sorted(asked, reverse=True)
    mapped = calibration.chances(falling)
    assert all(0.0 <= chance <= 1.0 for chance in mapped)
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(mapped))


@pytest.mark.parametrize("truth", [lambda p: p**2, lambda p: p**0.5, lambda p: 0.4 * p])
def test_a_head_that_is_too_sure_or_too_timid_is_found_out(truth: object) -> None:
    assert callable(truth)
    rng, calibration = np.random.default_rng(1), Calibration()
    for _ in range(800):
        given_chances = rng.random(8)
        calibration.observe(given_chances.tolist(), (rng.random(8) < truth(given_chances)).tolist())
    asked = np.linspace(0.05, 0.95, 19)
    assert np.abs(np.array(calibration.chances(asked.tolist())) - truth(asked)).max() < 0.08


def test_old_evidence_gives_way_to_new() -> None:
    calibration = Calibration()
    for _ in range(2000):
        calibration.observe([0.7], [False])
    low = calibration.chances([0.7])[0]
    for _ in range(2000):
        calibration.observe([0.7], [True])
    assert low < 0.1 and calibration.chances([0.7])[0] > 0.85


def test_few_drafts_move_a_chance_a_little() -> None:
    calibration = Calibration()
    calibration.observe([0.57], [False])
    assert 0.45 < calibration.chances([0.57])[0] < 0.57
    assert calibration.chances([0.9]) == pytest.approx((0.9,), abs=0.01) and len(EDGES) > 5
