"""The depth policy: priors, learning, costs, probes and the plain guard."""

from math import inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.costs import CostCurve
from tensorfold.domain.drafting.depth import DepthPolicy, DepthSettings

FLAT = CostCurve([(1, 10.0), (32, 10.0)])
GUARDED = DepthSettings(plain_guard=True)
DEAR = CostCurve([(1, 10.0), (2, 30.0), (3, 90.0), (32, 960.0)])
rounds = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.none() | st.floats(0.1, 100.0)), max_size=40)


def test_the_prior_falls_with_depth_and_ends_at_a_half() -> None:
    assert DepthPolicy(9).acceptance == (0.85, 0.75, 0.70, 0.65, 0.60, 0.55, 0.50, 0.50, 0.50)


def test_chances_are_products_of_acceptances() -> None:
    assert DepthPolicy(4).chances(3) == pytest.approx((0.85, 0.85 * 0.75, 0.85 * 0.75 * 0.70))
    assert len(DepthPolicy(2).chances(9)) == 2
    assert DepthPolicy(2).chances(0) == ()


def test_only_depths_that_were_decided_are_learned_from() -> None:
    policy = DepthPolicy(4)
    policy.observe(3, 1)
    assert policy.acceptance == pytest.approx((0.85 + 0.15 * 0.15, 0.75 - 0.15 * 0.75, 0.70, 0.65))
    policy.observe(2, 2)
    assert policy.acceptance[2:] == (0.70, 0.65)


def test_drafts_past_the_cap_are_not_learned_from() -> None:
    policy = DepthPolicy(2)
    policy.observe(5, 5)
    assert len(policy.acceptance) == 2


def test_free_rows_are_drafted_to_the_end() -> None:
    assert DepthPolicy(6, curve=FLAT).choose(4) == 4
    assert DepthPolicy(3, curve=FLAT).choose(9) == 3


def test_rows_that_cost_more_than_they_bring_stop_the_depth() -> None:
    curve = CostCurve([(1, 10.0), (3, 11.0), (4, 30.0), (32, 400.0)])
    assert DepthPolicy(8, curve=curve).choose(8) == 2


def test_of_equal_rates_the_smaller_depth_is_taken() -> None:
    even = DepthSettings(prior=(1.0,))
    curve = CostCurve([(1, 10.0), (2, 20.0), (3, 30.0)])
    assert DepthPolicy(2, curve=curve, settings=even).choose(2) == 1


def test_the_heads_own_time_counts() -> None:
    assert DepthPolicy(4, curve=FLAT, head_ms=(1.0, 50.0, 90.0, 120.0)).choose(4) == 1


def test_past_its_measured_depths_the_heads_time_grows_by_the_last_per_draft() -> None:
    cheap = DepthPolicy(4, curve=FLAT, head_ms=(0.01, 0.02))
    assert cheap.choose(4) == 4
    dear = DepthPolicy(4, curve=FLAT, head_ms=(8.0,))
    assert dear.choose(4) == 1


def test_without_room_nothing_is_drafted() -> None:
    assert DepthPolicy(4, curve=FLAT).choose(0) == 0
    assert DepthPolicy(4, curve=FLAT).choose(-1) == 0
    assert DepthPolicy(0, curve=FLAT).choose(5) == 0
    empty = DepthPolicy(0, curve=FLAT)
    empty.observe(0, 0)
    assert empty.acceptance == ()


def test_without_costs_acceptance_alone_decides() -> None:
    policy = DepthPolicy(5)
    assert policy.choose(5) == 2
    assert policy.choose(1) == 1
    for _ in range(4):
        policy.observe(1, 1)
    assert policy.acceptance[0] > 0.9
    assert policy.choose(5) == 3
    for _ in range(3):
        policy.observe(1, 0)
    assert policy.acceptance[0] < 0.8
    assert policy.choose(5) == 2  # a probe: the eighth round goes one deeper
    policy.observe(1, 0)
    assert policy.choose(5) == 1


def test_every_eighth_round_probes_one_deeper() -> None:
    curve = CostCurve([(1, 10.0), (2, 10.0), (3, 40.0), (32, 640.0)])
    policy, depths = DepthPolicy(4, curve=curve), []
    for _ in range(16):
        depths.append(policy.choose(4))
        policy.observe(1, 1)
    assert depths == ([1] * 7 + [2]) * 2


def test_a_probe_does_not_pass_the_room() -> None:
    policy = DepthPolicy(4, curve=FLAT)
    for _ in range(7):
        policy.observe(2, 2)
    assert policy.choose(2) == 2


def test_timed_rounds_take_the_place_of_the_loads_costs() -> None:
    policy = DepthPolicy(2, curve=FLAT)
    assert policy.choose(2) == 2
    policy.observe(2, 2, 1000.0)
    assert policy.choose(2) == 2  # the first round's time holds what is set up once
    policy.observe(2, 2, 1000.0)
    assert policy.choose(2) == 1


def test_a_timed_rounds_cost_moves_by_a_fifth() -> None:
    curve = CostCurve([(1, 10.0), (3, 10.0)])
    even = DepthSettings(prior=(1.0,))
    policy = DepthPolicy(2, curve=curve, settings=even)
    policy.observe(2, 2)
    policy.observe(2, 2, 10.0)
    policy.observe(2, 2, 30.0)
    assert policy.choose(2) == 2  # 3 / 14 against 2 / 10
    policy.observe(2, 2, 30.0)
    assert policy.choose(2) == 1  # 3 / 17.2 against 2 / 10


@pytest.mark.parametrize("ms", [nan, inf, 0.0, -5.0, None])
def test_times_that_are_none_are_not_learned_from(ms: float | None) -> None:
    policy = DepthPolicy(2, curve=FLAT)
    for _ in range(3):
        policy.observe(2, 2, ms)
    assert policy.choose(2) == 2


def test_without_the_guard_at_least_one_draft_is_made() -> None:
    assert DepthPolicy(4, curve=DEAR).choose(4) == 1


def test_the_guard_asks_a_drafted_depth_to_beat_plain_rounds_by_a_twentieth() -> None:
    even = DepthSettings(plain_guard=True, prior=(1.0,))
    near = CostCurve([(1, 10.0), (2, 19.2)])
    clear = CostCurve([(1, 10.0), (2, 19.0)])
    assert DepthPolicy(1, curve=near, settings=even).choose(1) == 0
    assert DepthPolicy(1, curve=clear, settings=even).choose(1) == 1


def test_plain_rounds_are_broken_by_a_probe_after_waits_that_double() -> None:
    policy = DepthPolicy(4, curve=DEAR, settings=GUARDED)
    waits: list[int] = []
    plain = 0
    while len(waits) < 7:
        depth = policy.choose(4)
        policy.observe(depth, 0)
        if depth:
            assert depth == 1
            waits.append(plain)
            plain = 0
        else:
            plain += 1
    assert waits == [8, 16, 32, 64, 128, 128, 128]


def test_drafts_that_pay_again_bring_the_first_wait_back() -> None:
    curve = CostCurve([(1, 10.0), (2, 15.0)])
    policy = DepthPolicy(1, curve=curve, settings=GUARDED)
    while policy.choose(1):
        policy.observe(1, 0)
    for _ in range(9):
        policy.observe(0, 0)
    assert policy.choose(1) == 1
    policy.observe(1, 0)
    for _ in range(15):
        assert policy.choose(1) == 0
        policy.observe(0, 0)
    policy.observe(0, 0)
    while not policy.acceptance[0] > 0.6:
        policy.observe(1, 1)
    assert policy.choose(1) == 1
    while policy.choose(1):
        policy.observe(1, 0)
    plain = 0
    while not policy.choose(1):
        policy.observe(0, 0)
        plain += 1
    assert plain == 8


def test_a_draft_that_is_made_while_plain_rounds_win_is_a_try() -> None:
    policy = DepthPolicy(1, curve=CostCurve([(1, 10.0), (2, 15.0)]), settings=GUARDED)
    assert policy.choose(1) == 1 and not policy.is_try(1)
    while policy.choose(1):
        policy.observe(1, 0)
    for _ in range(9):
        policy.observe(0, 0)
    assert policy.choose(1) == 1 and policy.is_try(1)
    assert not DepthPolicy(1, curve=DEAR).is_try(1)


def test_the_guard_without_a_plain_cost_lets_drafts_run() -> None:
    policy = DepthPolicy(1, settings=GUARDED)
    for _ in range(3):
        policy.observe(1, 1, 50.0)
    assert policy.choose(1) == 1


@settings(derandomize=True, deadline=None, max_examples=150)
@given(rounds=rounds, cap=st.integers(0, 8), most=st.integers(-1, 9), guard=st.booleans(), measured=st.booleans())
@pytest.mark.slow
def test_a_depth_is_within_its_bounds_and_asking_twice_changes_nothing(
    rounds: list[tuple[int, int, float | None]], cap: int, most: int, guard: bool, measured: bool
) -> None:
    policy = DepthPolicy(cap, curve=FLAT if measured else None, settings=DepthSettings(plain_guard=guard))
    for drafted, kept, ms in rounds:
        policy.observe(drafted, min(kept, drafted), ms)
        depth = policy.choose(most)
        assert policy.choose(most) == depth
        assert (0 if guard else min(1, max(most, 0), cap)) <= depth <= max(min(most, cap), 0)
    assert all(0.0 <= chance <= 1.0 for chance in policy.acceptance)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    kept=st.lists(st.integers(0, 4), max_size=30),
    costs=st.lists(st.tuples(st.integers(1, 8), st.floats(1.0, 50.0)), min_size=1, max_size=5),
    head=st.lists(st.floats(0.1, 20.0), max_size=4),
)
@pytest.mark.slow
def test_outside_probes_no_other_depth_expects_more_tokens_per_millisecond(
    kept: list[int], costs: list[tuple[int, float]], head: list[float]
) -> None:
    curve = CostCurve(costs)
    policy = DepthPolicy(4, curve=curve, head_ms=head, settings=DepthSettings(probe_every=1000))
    for landed in kept:
        policy.observe(4, landed)

    def rate(depth: int) -> float:
        own = 0.0
        if head:
            own = head[depth - 1] if depth <= len(head) else head[-1] * depth / len(head)
        return (1.0 + sum(policy.chances(depth))) / (curve.ms(depth + 1) + own)

    assert rate(policy.choose(4)) == pytest.approx(max(rate(depth) for depth in range(1, 5)))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(rounds, st.booleans(), st.integers(1, 9))
def test_a_policy_that_is_asked_all_the_time_chooses_as_one_that_is_asked_once(
    seen: list[tuple[int, int, float | None]], guarded: bool, most: int
) -> None:
    settings = DepthSettings(plain_guard=guarded)
    curves = [CostCurve([(1, 10.0), (4, 11.0), (16, 30.0)]) for _ in range(2)]
    asked, quiet = (DepthPolicy(9, curve=curve, head_ms=(1.0, 1.5), settings=settings) for curve in curves)
    for drafted, kept, ms in seen:
        for curve in curves:
            curve.observe(1 + drafted, 10.0 + kept)
        asked.choose(most)
        asked.is_try(9)
        for policy in (asked, quiet):
            policy.observe(drafted, kept, ms)
        asked.choose(9)
    assert (asked.choose(most), asked.is_try(most)) == (quiet.choose(most), quiet.is_try(most))
