"""The landing curve: priors, learning by class and depth, decay."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.landing import OWN_CONTEXT_CLASSES, LandingCurve, MatchClass

outcomes = st.lists(st.tuples(st.integers(1, 100), st.integers(0, 40), st.booleans()), max_size=40)


def test_a_confident_match_begins_at_ninety_four_in_a_hundred_a_draft() -> None:
    assert LandingCurve().chances(24, 5) == pytest.approx([0.94**j for j in range(1, 6)])


def test_shorter_matches_begin_lower() -> None:
    curve = LandingCurve()
    firsts = [curve.chances(length, 1)[0] for length in (2, 3, 4, 5, 7, 8, 11, 12, 15, 16, 23, 24, 63, 64)]
    assert firsts == [0.25, 0.35, 0.35, 0.50, 0.50, 0.60, 0.60, 0.75, 0.75, 0.85, 0.85, 0.94, 0.94, 0.94]
    laters = [curve.chances(length, 2)[1] / curve.chances(length, 2)[0] for length in (2, 3, 5, 8, 12, 16, 24, 64)]
    assert laters == pytest.approx([0.50, 0.60, 0.75, 0.85, 0.90, 0.92, 0.94, 0.97])
    assert curve.chances(8, 3) == pytest.approx([0.60, 0.60 * 0.85, 0.60 * 0.85**2])
    assert curve.chances(64, 2)[1] == pytest.approx(0.94 * 0.97)


def test_a_match_shorter_than_every_class_counts_as_the_first() -> None:
    assert LandingCurve().chances(1, 4) == LandingCurve().chances(2, 4)


def test_a_wider_question_repeats_the_narrow_answer() -> None:
    curve = LandingCurve()
    narrow = curve.chances(30, 3)
    assert curve.chances(30, 20)[:3] == narrow
    assert curve.chances(30, 3) == narrow
    assert curve.chances(30, 0) == ()


def test_a_copys_depth_goes_on_from_window_to_window() -> None:
    curve = LandingCurve([MatchClass(8, 0.5, 0.9)])
    assert curve.chances(8, 2) == pytest.approx((0.5, 0.45))
    assert curve.chances(8, 2, behind=1) == pytest.approx((0.9, 0.81))
    curve.observe(8, 0, True, behind=3)
    assert _steps(curve.chances(8, 20))[1:4] == pytest.approx([(8 * 0.9) / 9] * 3)
    assert _steps(curve.chances(8, 20))[4:] == pytest.approx([0.9] * 16)
    curve.observe(8, 2, True, behind=100)
    steps = _steps(curve.chances(8, 20))
    assert steps[0] == pytest.approx(0.5)
    assert steps[16:] == pytest.approx([(8 * 0.9 + 2) / (8 + 3)] * 4)
    assert _steps(curve.chances(8, 4, behind=16)) == pytest.approx([(8 * 0.9 + 2) / (8 + 3)] * 4)
    assert curve.chances(8, 4, behind=5000) == curve.chances(8, 4, behind=16)


def test_one_outcome_moves_the_bins_it_decided_and_no_others() -> None:
    curve = LandingCurve([MatchClass(8, 0.5, 0.5), MatchClass(16, 0.5, 0.5)])
    curve.observe(8, 2, True)
    steps = _steps(curve.chances(8, 20))
    assert steps[0] == pytest.approx((4 + 1) / (8 + 1))
    assert steps[1] == steps[2] == steps[3] == pytest.approx((4 + 1) / (8 + 2))
    assert steps[4:] == pytest.approx([0.5] * 16)
    assert _steps(curve.chances(16, 20)) == pytest.approx([0.5] * 20)


def test_a_landing_into_the_deepest_bin_is_counted_whole() -> None:
    curve = LandingCurve([MatchClass(8, 0.5, 0.5)])
    curve.observe(8, 30, True)
    steps = _steps(curve.chances(8, 17))
    assert steps[1] == pytest.approx((4 + 3) / (8 + 3))
    assert steps[4] == pytest.approx((4 + 12) / (8 + 12))
    assert steps[16] == pytest.approx((4 + 14) / (8 + 15))


@pytest.mark.parametrize(("stay", "weights"), [(True, (8.0, 8.0, 8.0)), (False, (8.0, 64 / 12, 64 / 15))])
def test_a_prior_gives_way_to_what_landed_where_it_may(stay: bool, weights: tuple[float, ...]) -> None:
    curve = LandingCurve([MatchClass(8, 0.5, 0.5)], priors_stay=stay)
    curve.observe(8, 30, True)
    steps, (first, second, third) = _steps(curve.chances(8, 17)), weights
    assert steps[1] == pytest.approx((first / 2 + 3) / (first + 3))
    assert steps[4] == pytest.approx((second / 2 + 12) / (second + 12))
    assert steps[16] == pytest.approx((third / 2 + 14) / (third + 15))


def test_an_outcome_changes_the_answer_to_the_next_question() -> None:
    curve = LandingCurve()
    before = curve.chances(30, 4)
    curve.observe(30, 0, True)
    assert curve.chances(30, 4)[0] < before[0]


def test_a_first_miss_lowers_the_first_draft_only() -> None:
    curve = LandingCurve([MatchClass(8, 0.5, 0.5)])
    curve.observe(8, 0, True)
    assert _steps(curve.chances(8, 3)) == pytest.approx([4 / 9, 0.5, 0.5])


def test_older_outcomes_fade_with_every_offer() -> None:
    curve = LandingCurve([MatchClass(8, 0.5, 0.5)])
    curve.observe(8, 1, False)
    curve.observe(8, 0, True)
    assert curve.chances(8, 1)[0] == pytest.approx((4 + 0.97) / (8 + 0.97 + 1))


def test_an_outcome_that_decided_nothing_changes_nothing() -> None:
    curve = LandingCurve()
    curve.observe(8, 1, False)
    before = curve.chances(8, 30)
    curve.observe(8, 0, False)
    assert curve.chances(8, 30) == before


@settings(derandomize=True, deadline=None, max_examples=60)
@given(outcomes=outcomes, length=st.integers(0, 200), count=st.integers(0, 130))
def test_chances_stay_probabilities_and_never_rise_with_depth(
    outcomes: list[tuple[int, int, bool]], length: int, count: int
) -> None:
    curve = LandingCurve()
    for observed, landed, missed in outcomes:
        curve.observe(observed, landed, missed)
    chances = curve.chances(length, count)
    assert len(chances) == count
    assert all(0.0 < chance < 1.0 for chance in chances)
    assert list(chances) == sorted(chances, reverse=True)


def test_what_always_lands_comes_to_be_trusted_and_what_never_lands_does_not() -> None:
    curve = LandingCurve()
    for _ in range(100):
        curve.observe(30, 7, False)
        curve.observe(10, 0, True)
    assert curve.chances(30, 7)[6] > 0.9
    assert curve.chances(10, 1)[0] < 0.2


@pytest.mark.parametrize("leasts", [(), (8, 8), (16, 8)])
def test_classes_out_of_order_are_refused(leasts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="not an ascending list"):
        LandingCurve([MatchClass(least, 0.5, 0.5) for least in leasts])


def test_the_own_contexts_classes_begin_where_copies_do() -> None:
    assert [c.least for c in OWN_CONTEXT_CLASSES] == [2, 3, 5, 8, 12, 16, 24, 64]


def _steps(chances: tuple[float, ...]) -> list[float]:
    return [now / before for before, now in zip((1.0, *chances), chances, strict=False)]
