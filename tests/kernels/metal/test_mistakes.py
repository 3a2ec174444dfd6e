"""Planted faults are noticed: in the kernels that are shipped, not in examples."""

from __future__ import annotations

import pytest

from tests.kernels.metal.mistakes import Mistake, barriers, noticed, others


@pytest.mark.parametrize("mistake", list(others()), ids=lambda one: one.about)
def test_a_planted_fault_is_noticed(mistake: Mistake) -> None:
    assert noticed(mistake)


def test_faults_are_called_by_their_names() -> None:
    said = {mistake.about: noticed(mistake) for mistake in others()}
    assert "divergent simd operation" in said["a tree over slices that half of the lanes skip"]
    assert "divergent simd operation" in said["a sum that one simdgroup's lane skips"]
    assert "elements that nobody wrote, the first at (0, 7)" in said["a channel without a result"]
    assert "elements that nobody wrote, the first at (0, 12)" in said["a last output without a result"]
    assert "an access past the end of 'y'" in said["a result past the last row"]
    assert "bits differ" in said["a rounding that depends on the row count"]


@pytest.mark.slow
@pytest.mark.parametrize("mistake", list(barriers()), ids=lambda one: one.about)
def test_a_removed_barrier_is_noticed(mistake: Mistake) -> None:
    assert noticed(mistake)
