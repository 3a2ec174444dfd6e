"""Row allocation against the rule written out plainly."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.allocation import RowRequest, allocate
from tensorfold.domain.drafting.costs import CostCurve

FLAT = CostCurve([(1, 10.0), (32, 10.0)])
STEEP = CostCurve([(1, 10.0), (32, 320.0)])
chances = st.lists(st.integers(0, 20), max_size=8).map(lambda ns: tuple(n / 20 for n in sorted(ns, reverse=True)))
requests = st.lists(st.builds(RowRequest, st.integers(1, 3), chances), min_size=1, max_size=6)
curves = st.lists(st.tuples(st.integers(1, 40), st.floats(1.0, 100.0)), min_size=1, max_size=6).map(CostCurve)


def plainly(requests: Sequence[RowRequest], curve: CostCurve, batch_rows: int, overhead_ms: float) -> tuple[int, ...]:
    """One row after another, each the likeliest next one; the first count with the highest rate."""
    grants = [0] * len(requests)
    tokens = float(len(requests))
    rows = sum(r.fixed for r in requests)
    best, best_rate = tuple(grants), tokens / (curve.ms(rows) + overhead_ms)
    while rows < batch_rows:
        open_streams = [i for i, r in enumerate(requests) if grants[i] < len(r.chances)]
        if not open_streams:
            break
        stream = max(open_streams, key=lambda i: (requests[i].chances[grants[i]], -i))
        tokens += requests[stream].chances[grants[stream]]
        grants[stream] += 1
        rows += 1
        rate = tokens / (curve.ms(rows) + overhead_ms)
        if rate > best_rate:
            best, best_rate = tuple(grants), rate
    return best


@settings(derandomize=True, deadline=None, max_examples=300)
@given(requests=requests, curve=curves, batch_rows=st.integers(1, 40), overhead=st.floats(0.0, 20.0))
@pytest.mark.slow
def test_the_grants_are_those_of_the_plain_rule(
    requests: list[RowRequest], curve: CostCurve, batch_rows: int, overhead: float
) -> None:
    grants = allocate(requests, curve, batch_rows=batch_rows, overhead_ms=overhead)
    assert grants == plainly(requests, curve, batch_rows, overhead)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(requests=requests, curve=curves, batch_rows=st.integers(1, 40), overhead=st.floats(0.0, 20.0))
@pytest.mark.slow
def test_rows_stay_within_the_launch_and_rates_never_below_plain_rounds(
    requests: list[RowRequest], curve: CostCurve, batch_rows: int, overhead: float
) -> None:
    grants = allocate(requests, curve, batch_rows=batch_rows, overhead_ms=overhead)
    assert len(grants) == len(requests)
    assert all(0 <= granted <= len(r.chances) for granted, r in zip(grants, requests, strict=True))
    fixed = sum(r.fixed for r in requests)
    assert fixed + sum(grants) <= max(batch_rows, fixed)
    gained = sum(sum(r.chances[:granted]) for granted, r in zip(grants, requests, strict=True))
    plain = len(requests) / (curve.ms(fixed) + overhead)
    assert (len(requests) + gained) / (curve.ms(fixed + sum(grants)) + overhead) >= plain * (1 - 1e-12)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(requests=requests, curve=curves, batch_rows=st.integers(1, 20), overhead=st.floats(0.0, 20.0))
@pytest.mark.slow
def test_no_other_grant_of_as_many_rows_expects_more(
    requests: list[RowRequest], curve: CostCurve, batch_rows: int, overhead: float
) -> None:
    grants = allocate(requests, curve, batch_rows=batch_rows, overhead_ms=overhead)
    gained = sum(sum(r.chances[:granted]) for granted, r in zip(grants, requests, strict=True))
    every = sorted((chance for r in requests for chance in r.chances), reverse=True)
    assert gained == pytest.approx(sum(every[: sum(grants)]))


def test_free_rows_are_all_granted() -> None:
    assert allocate([RowRequest(1, (0.9, 0.5, 0.1))], FLAT, batch_rows=32, overhead_ms=0.0) == (3,)


def test_rows_that_cost_as_much_as_a_round_are_not() -> None:
    assert allocate([RowRequest(1, (0.9, 0.8, 0.7))], STEEP, batch_rows=32, overhead_ms=0.0) == (0,)


def test_a_lone_window_is_as_wide_as_its_rows_pay() -> None:
    curve = CostCurve([(1, 10.0), (4, 11.0), (5, 40.0)])
    assert allocate([RowRequest(1, (0.9,) * 8)], curve, batch_rows=32, overhead_ms=0.0) == (3,)


def test_a_step_in_the_costs_is_crossed_when_enough_lies_behind_it() -> None:
    curve = CostCurve([(1, 10.0), (4, 10.0), (5, 15.0), (32, 15.0)])
    assert allocate([RowRequest(1, (0.99,) * 4)], curve, batch_rows=32, overhead_ms=0.0) == (3,)
    assert allocate([RowRequest(1, (0.99,) * 12)], curve, batch_rows=32, overhead_ms=0.0) == (12,)


def test_overhead_makes_wider_rounds_worth_more() -> None:
    requests = [RowRequest(1, (0.6,))]
    curve = CostCurve([(1, 10.0), (2, 17.0)])
    assert allocate(requests, curve, batch_rows=8, overhead_ms=0.0) == (0,)
    assert allocate(requests, curve, batch_rows=8, overhead_ms=8.0) == (1,)


def test_the_launchs_rows_go_to_the_likeliest_drafts() -> None:
    requests = [RowRequest(1, (0.5, 0.4)), RowRequest(1, (0.9, 0.8, 0.3))]
    assert allocate(requests, FLAT, batch_rows=5, overhead_ms=0.0) == (1, 2)


def test_of_equal_chances_the_earlier_stream_comes_first() -> None:
    requests = [RowRequest(1, (0.5, 0.5)), RowRequest(1, (0.5,))]
    assert allocate(requests, FLAT, batch_rows=3, overhead_ms=0.0) == (1, 0)
    assert allocate(requests, FLAT, batch_rows=4, overhead_ms=0.0) == (2, 0)


def test_a_draft_without_any_chance_is_not_worth_a_free_row() -> None:
    assert allocate([RowRequest(1, (0.5, 0.0))], FLAT, batch_rows=9, overhead_ms=0.0) == (1,)


def test_fixed_rows_are_never_cut() -> None:
    requests = [RowRequest(6, (0.9,)), RowRequest(6, (0.9,))]
    assert allocate(requests, FLAT, batch_rows=8, overhead_ms=0.0) == (0, 0)
    assert allocate(requests, FLAT, batch_rows=12, overhead_ms=0.0) == (0, 0)
    assert allocate(requests, FLAT, batch_rows=13, overhead_ms=0.0) == (1, 0)


def test_streams_that_ask_for_nothing_get_nothing() -> None:
    assert allocate([RowRequest(1)] * 3, FLAT, batch_rows=8, overhead_ms=0.0) == (0, 0, 0)
    assert allocate([], FLAT, batch_rows=8, overhead_ms=0.0) == ()
