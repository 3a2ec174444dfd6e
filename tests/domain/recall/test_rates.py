"""Landing rates of copies: classes by match length, priors, learning apart, closing and opening again."""

from itertools import pairwise

import pytest

from tensorfold.domain.recall.rates import (
    CLASSES,
    NAMES,
    RESUMED,
    RESUMED_IDS,
    RESUMED_LENGTHS,
    LandingRates,
    match_class,
)

SHORT, MIDDLE, LONG, AFTER_EDIT = range(4)


def ladder(first: float, later: float, count: int) -> list[float]:
    return [first * later**depth for depth in range(count)]


@pytest.mark.parametrize(
    ("length", "name"),
    [(16, "16-31"), (31, "16-31"), (32, "32-63"), (63, "32-63"), (64, "64+"), (1024, "64+")],
)
def test_matches_are_classed_by_length(length: int, name: str) -> None:
    assert NAMES[match_class(length)] == name


@pytest.mark.parametrize("length", [3, 16, 18])
def test_a_resumed_copy_has_a_class_of_its_own(length: int) -> None:
    assert NAMES[match_class(length, resumed=True)] == "resumed"


def test_a_copy_counts_as_resumed_until_sixteen_fresh_ids_matched() -> None:
    assert RESUMED_IDS == 3
    assert list(RESUMED_LENGTHS) == list(range(3, 19))


def test_every_class_begins_at_its_prior() -> None:
    rates = LandingRates(6)
    assert rates.chances(SHORT, 4) == pytest.approx(ladder(0.70, 0.90, 4))
    assert rates.chances(MIDDLE, 4) == pytest.approx(ladder(0.82, 0.94, 4))
    assert rates.chances(LONG, 4) == pytest.approx(ladder(0.92, 0.97, 4))
    assert rates.chances(AFTER_EDIT, 20) == pytest.approx(ladder(0.75, 0.92, 20))
    assert [kind.least for kind in (*CLASSES, RESUMED)] == [16, 32, 64, 3]


@pytest.mark.parametrize("kind", range(4))
def test_copies_of_which_a_fifth_lands_come_to_be_expected_to(kind: int) -> None:
    rates = LandingRates(6)
    for _ in range(40):
        rates.observe(kind, 7, False)
        for _ in range(4):
            rates.observe(kind, 0, True)
    assert 0.15 < rates.chances(kind, 1)[0] < 0.25
    assert rates.prior(kind, 1) == LandingRates(6).prior(kind, 1)


@pytest.mark.parametrize("kind", range(4))
def test_classes_learn_apart(kind: int) -> None:
    rates = LandingRates(6)
    before = [rates.chances(each, 7) for each in range(4)]
    rates.observe(kind, 0, True)
    after = [rates.chances(each, 7) for each in range(4)]
    assert [each for each in range(4) if before[each] != after[each]] == [kind]
    assert after[kind][0] < before[kind][0]


def test_depths_learn_apart() -> None:
    rates = LandingRates(6)
    rates.observe(SHORT, 1, True)
    chances = rates.chances(SHORT, 6)
    steps = [b / a for a, b in pairwise(chances)]
    assert chances[0] == pytest.approx((8 * 0.7 + 1) / 9)
    assert steps[:3] == pytest.approx([8 * 0.9 / 9] * 3)
    assert steps[3:] == pytest.approx([0.9] * 2)


def test_the_prior_stays_what_it_was() -> None:
    rates = LandingRates(6)
    before = [rates.prior(kind, 9) for kind in range(4)]
    for kind in range(4):
        assert before[kind] == rates.chances(kind, 9)
        rates.observe(kind, 0, True)
    assert [rates.prior(kind, 9) for kind in range(4)] == before


def test_a_class_that_misses_six_times_in_a_row_has_no_chance() -> None:
    rates = LandingRates(6)
    for _ in range(5):
        rates.observe(MIDDLE, 0, True)
    assert min(rates.chances(MIDDLE, 3)) > 0.0
    rates.observe(MIDDLE, 0, True)
    assert rates.chances(MIDDLE, 3) == (0.0, 0.0, 0.0)
    assert rates.chances(MIDDLE, 0) == ()
    assert min(rates.chances(SHORT, 3)) > 0.0


def test_a_landing_opens_a_closed_class_and_starts_the_count_anew() -> None:
    rates = LandingRates(2)
    for _ in range(3):
        rates.observe(LONG, 0, True)
    assert rates.chances(LONG, 1) == (0.0,)
    rates.observe(LONG, 1, True)
    assert rates.chances(LONG, 1)[0] > 0.0
    rates.observe(LONG, 0, True)
    assert rates.chances(LONG, 1)[0] > 0.0
    rates.observe(LONG, 0, True)
    assert rates.chances(LONG, 1) == (0.0,)


def test_what_the_target_did_not_decide_is_neither_hit_nor_miss() -> None:
    rates = LandingRates(1)
    before = rates.chances(LONG, 5)
    rates.observe(LONG, 0, False)
    assert rates.chances(LONG, 5) == before
