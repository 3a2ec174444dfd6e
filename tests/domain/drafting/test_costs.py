"""The cost curve: between, below and past its points, and what rounds teach it."""

from itertools import pairwise
from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.costs import CostCurve

points = st.lists(st.tuples(st.integers(1, 60), st.floats(0.01, 1000.0)), min_size=1, max_size=12)
junk = st.tuples(st.integers(-3, 80), st.floats(allow_nan=True, allow_infinity=True))


def test_measured_points_are_given_back() -> None:
    curve = CostCurve([(8, 14.0), (1, 10.0), (16, 20.0)])
    assert [curve.ms(rows) for rows in (1, 8, 16)] == [10.0, 14.0, 20.0]
    assert curve.points == ((1, 10.0), (8, 14.0), (16, 20.0))


def test_costs_between_points_lie_on_the_line() -> None:
    curve = CostCurve([(1, 10.0), (5, 18.0), (7, 30.0)])
    assert [curve.ms(rows) for rows in (2, 3, 4, 6)] == [12.0, 14.0, 16.0, 24.0]


def test_past_the_widest_point_each_row_costs_what_its_rows_cost() -> None:
    curve = CostCurve([(1, 10.0), (8, 16.0)])
    assert [curve.ms(rows) for rows in (9, 16, 80)] == [18.0, 32.0, 160.0]


def test_below_the_narrowest_point_nothing_gets_cheaper() -> None:
    curve = CostCurve([(4, 10.0), (8, 16.0)])
    assert [curve.ms(rows) for rows in (0, 1, 3, 4)] == [10.0] * 4


def test_points_that_fall_are_levelled_to_their_mean() -> None:
    curve = CostCurve([(1, 10.0), (2, 14.0), (3, 12.0), (4, 20.0)])
    assert [curve.ms(rows) for rows in (1, 2, 3, 4)] == [10.0, 13.0, 13.0, 20.0]
    assert [CostCurve([(1, 9.0), (2, 6.0), (3, 3.0)]).ms(rows) for rows in (1, 2, 3)] == [6.0] * 3
    deep = CostCurve([(1, 5.0), (2, 6.0), (3, 1.0)])
    assert [deep.ms(rows) for rows in (1, 2, 3)] == [4.0] * 3


@settings(derandomize=True, deadline=None, max_examples=150)
@given(points=points, seen=st.lists(junk, max_size=12), first=st.integers(0, 90), width=st.integers(0, 60))
@pytest.mark.slow
def test_costs_are_positive_and_never_fall_whatever_was_seen(
    points: list[tuple[int, float]], seen: list[tuple[int, float]], first: int, width: int
) -> None:
    curve = CostCurve(points)
    for rows, ms in seen:
        curve.observe(rows, ms)
    span = curve.span(first, first + width)
    assert len(span) == width + 1
    assert span == [curve.ms(first + more) for more in range(width + 1)]
    assert all(0.0 < cost < inf for cost in span)
    assert all(later >= earlier * (1 - 1e-12) for earlier, later in pairwise(span))


def test_a_round_moves_its_own_point_by_a_fifth() -> None:
    curve = CostCurve([(1, 10.0), (8, 20.0)])
    curve.observe(8, 30.0)
    assert curve.points == ((1, 10.0), (8, 22.0))
    assert curve.ms(8) == 22.0
    curve.observe(1, 5.0)
    assert curve.points == ((1, 9.0), (8, 22.0))


def test_a_round_between_points_adds_one_beside_the_line() -> None:
    curve = CostCurve([(1, 10.0), (5, 18.0)])
    curve.observe(3, 19.0)
    assert curve.points == ((1, 10.0), (3, 15.0), (5, 18.0))


def test_a_round_past_the_widest_point_begins_at_what_was_seen() -> None:
    curve = CostCurve([(1, 10.0), (8, 16.0)])
    curve.observe(16, 17.0)
    assert curve.points[-1] == (16, 17.0)
    curve.observe(32, 44.0)
    assert curve.points[-1] == (32, 34.0 + 0.2 * (44.0 - 34.0))


def test_a_stall_counts_as_four_times_the_present_cost_at_most() -> None:
    curve = CostCurve([(1, 10.0)])
    curve.observe(1, 5000.0)
    assert curve.points == ((1, 10.0 + 0.2 * 30.0),)


@pytest.mark.parametrize(("rows", "ms"), [(1, nan), (1, inf), (1, -inf), (1, 0.0), (1, -1.0), (0, 5.0), (-2, 5.0)])
def test_junk_is_ignored(rows: int, ms: float) -> None:
    curve = CostCurve([(1, 10.0), (rows, ms)])
    curve.observe(rows, ms)
    assert curve.points == ((1, 10.0),)


def test_a_curve_needs_a_point() -> None:
    with pytest.raises(ValueError, match="none of 2 cost points"):
        CostCurve([(1, nan), (0, 3.0)])


def test_the_last_of_two_points_for_the_same_rows_counts() -> None:
    assert CostCurve([(1, 10.0), (1, 12.0)]).points == ((1, 12.0),)


def test_a_machine_that_slows_down_is_followed() -> None:
    curve = CostCurve([(1, 10.0), (8, 20.0)])
    for _ in range(40):
        curve.observe(1, 20.0)
        curve.observe(8, 40.0)
    assert curve.ms(1) == pytest.approx(20.0, rel=0.01)
    assert curve.ms(8) == pytest.approx(40.0, rel=0.01)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(points, st.lists(st.tuples(junk, st.integers(-2, 70), st.integers(0, 30)), max_size=20))
def test_a_curve_that_was_asked_before_answers_as_one_that_was_not(
    known: list[tuple[int, float]], steps: list[tuple[tuple[int, float], int, int]]
) -> None:
    curve = CostCurve(known)
    for seen, first, more in steps:
        curve.observe(*seen)
        assert curve.span(first, first + more) == CostCurve(curve.points).span(first, first + more)
        assert curve.ms(first) == CostCurve(curve.points).ms(first)
