"""Chunk plans and the slices of a chunk."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.prompts.chunks import plan_chunks, slices


@settings(derandomize=True, deadline=None, max_examples=150)
@given(length=st.integers(0, 300), chunk=st.integers(1, 80), more=st.integers(0, 100))
def test_a_plan_covers_every_position_once_on_a_grid(length: int, chunk: int, more: int) -> None:
    plan = plan_chunks(length, chunk)
    assert [p for start, stop in plan for p in range(start, stop)] == list(range(length))
    assert all(start % chunk == 0 and 0 < stop - start <= chunk for start, stop in plan)
    full = tuple(span for span in plan if span[1] - span[0] == chunk)
    assert plan_chunks(length + more, chunk)[: len(full)] == full


@settings(derandomize=True, deadline=None, max_examples=150)
@given(start=st.integers(0, 50), size=st.integers(0, 100), rows=st.integers(0, 40))
def test_slices_cover_their_span_in_order(start: int, size: int, rows: int) -> None:
    pieces = list(slices((start, start + size), rows))
    assert [p for a, b in pieces for p in range(a, b)] == list(range(start, start + size))
    assert all(0 < b - a <= (rows or size) for a, b in pieces)
    assert len(pieces) == (-(-size // rows) if rows else min(size, 1))


def test_plans_by_example() -> None:
    assert plan_chunks(10, 4) == ((0, 4), (4, 8), (8, 10))
    assert plan_chunks(8, 4) == ((0, 4), (4, 8))
    assert plan_chunks(0, 4) == ()


def test_slices_by_example() -> None:
    assert list(slices((4, 14), 4)) == [(4, 8), (8, 12), (12, 14)]
    assert list(slices((4, 14), 0)) == [(4, 14)]
    assert list(slices((4, 4), 0)) == []


def test_sizes_that_cut_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="pieces of 0"):
        plan_chunks(5, 0)
    with pytest.raises(ValueError, match="pieces of -1"):
        slices((0, 5), -1)
    with pytest.raises(ValueError, match="-1 positions"):
        plan_chunks(-1, 4)
