"""Plans on a plain grid, and the slices of a chunk."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.prompts.chunks import ChunkRule, slices


@settings(derandomize=True, deadline=None, max_examples=150)
@given(length=st.integers(1, 300), chunk=st.integers(1, 80), more=st.integers(0, 100))
@pytest.mark.slow
def test_a_plan_covers_every_position_once_on_a_grid(length: int, chunk: int, more: int) -> None:
    rule = ChunkRule(chunk)
    plan = list(rule.plan([0] * length).spans())
    assert [p for start, stop in plan for p in range(start, stop)] == list(range(length - 1))
    assert all(start % chunk == 0 and 0 < stop - start <= chunk for start, stop in plan)
    full = [span for span in plan if span[1] - span[0] == chunk]
    assert list(rule.plan([0] * (length + more)).spans())[: len(full)] == full


@settings(derandomize=True, deadline=None, max_examples=150)
@given(start=st.integers(0, 50), size=st.integers(0, 100), rows=st.integers(0, 40))
@pytest.mark.slow
def test_slices_cover_their_span_in_order(start: int, size: int, rows: int) -> None:
    pieces = list(slices((start, start + size), rows))
    assert [p for a, b in pieces for p in range(a, b)] == list(range(start, start + size))
    assert all(0 < b - a <= (rows or size) for a, b in pieces)
    assert len(pieces) == (-(-size // rows) if rows else min(size, 1))


def test_plans_by_example() -> None:
    assert list(ChunkRule(4).plan(range(11)).spans()) == [(0, 4), (4, 8), (8, 10)]
    assert list(ChunkRule(4).plan(range(9)).spans()) == [(0, 4), (4, 8)]
    assert list(ChunkRule(4).plan([7]).spans()) == []


def test_slices_by_example() -> None:
    assert list(slices((4, 14), 4)) == [(4, 8), (8, 12), (12, 14)]
    assert list(slices((4, 14), 0)) == [(4, 14)]
    assert list(slices((4, 4), 0)) == []


def test_sizes_that_cut_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="256 to 0 ids"):
        ChunkRule(0)
    with pytest.raises(ValueError, match="pieces of -1"):
        slices((0, 5), -1)
