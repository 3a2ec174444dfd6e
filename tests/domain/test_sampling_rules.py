"""The sampler against a slow reference, over ties, infinities, NaN and settings at their edges."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tensorfold.domain.sampling import Sampling, best, draw, draw_rows, energies, noise, weight_needed, weights, winner
from tests.domain import sampling_reference as reference

LEVELS = [-math.inf, -30.0, -2.0, -0.5, -0.0, 0.0, 0.5, 0.75, 1.0, 3.0]
ROWS = st.lists(st.sampled_from([*LEVELS, math.nan]), min_size=1, max_size=24)
WILD_ROWS = st.lists(st.sampled_from([*LEVELS, math.nan, math.inf, 3e38, -3e38, 1e-45]), min_size=1, max_size=12)
TEMPERATURES = st.sampled_from([0.0, -1.0, 1e-9, 0.3, 0.7, 1.0, 2.5, 100.0, 1e9])
SAMPLINGS = st.builds(
    Sampling,
    seed=st.integers(0, 2**64 - 1),
    temperature=TEMPERATURES,
    top_k=st.integers(-1, 30),
    top_p=st.one_of(st.sampled_from([0.0, 1e-300, 0.05, 0.5, 0.9, 0.95, 1 - 2**-53, 1.0]), st.floats(0, 1)),
    min_p=st.one_of(st.sampled_from([0.0, 1e-300, 0.05, 0.5, 1.0]), st.floats(0, 1)),
)
FEW = settings(derandomize=True, deadline=None, max_examples=100)


def row_of(values: list[float]) -> np.ndarray:
    return np.array(values, dtype=np.float32)


@FEW
@given(ROWS, SAMPLINGS, st.integers(0, 300_000))
@example([math.nan, math.nan], Sampling(temperature=1.0), 0)
@example([-math.inf, -math.inf, math.nan], Sampling(temperature=0.7, top_k=2, top_p=0.5, min_p=0.1), 9)
@pytest.mark.slow
def test_a_draw_equals_the_slow_reference(values: list[float], sampling: Sampling, position: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert draw(row_of(values), position, sampling) == reference.draw(values, position, sampling)


@FEW
@given(WILD_ROWS, SAMPLINGS, st.integers(0, 300_000))
@pytest.mark.slow
def test_infinite_and_enormous_logits_draw_as_in_the_reference(
    values: list[float], sampling: Sampling, position: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        row = row_of(values)
        assert draw(row, position, sampling) == reference.draw(row.tolist(), position, sampling)


@FEW
@given(ROWS, SAMPLINGS, st.randoms(use_true_random=False), st.integers(0, 999))
@pytest.mark.slow
def test_the_order_of_candidates_never_matters(
    values: list[float], sampling: Sampling, random: object, position: int
) -> None:
    order = np.random.default_rng(random.randrange(2**32)).permutation(len(values))  # type: ignore[attr-defined]
    row = row_of(values)
    assert draw(row[order], position, sampling, order.astype(np.int64)) == draw(row, position, sampling)


@FEW
@given(ROWS, SAMPLINGS, st.integers(1, 6))
@pytest.mark.slow
def test_candidates_below_a_full_top_k_never_matter(values: list[float], sampling: Sampling, extra: int) -> None:
    row = row_of(values)
    sampling = Sampling(sampling.seed, sampling.temperature, len(values), sampling.top_p, sampling.min_p)
    lower = np.full(extra, -31.0 if -math.inf not in values and not np.isnan(row).any() else -math.inf, np.float32)
    assert draw(np.concatenate([row, lower]), 5, sampling) == draw(row, 5, sampling)


@FEW
@given(ROWS, SAMPLINGS, st.integers(1, 6))
@pytest.mark.slow
def test_masked_candidates_never_matter(values: list[float], sampling: Sampling, extra: int) -> None:
    row = row_of([*values, -40.0])
    masked = np.concatenate([row, np.full(extra, -math.inf, dtype=np.float32)])
    assert draw(masked, 5, sampling) == draw(row, 5, sampling)


@FEW
@given(st.lists(ROWS, min_size=1, max_size=6), st.lists(SAMPLINGS, min_size=6, max_size=6), st.integers(0, 99))
@pytest.mark.slow
def test_rows_drawn_together_equal_rows_drawn_alone(
    rows: list[list[float]], samplings: list[Sampling], position: int
) -> None:
    width = max(map(len, rows))
    logits = np.array([r + [-math.inf] * (width - len(r)) for r in rows], dtype=np.float32)
    for chosen in (samplings[: len(rows)], [Sampling()] * len(rows)):
        positions = range(position, position + len(rows))
        alone = [draw(row, p, s) for row, p, s in zip(logits, positions, chosen, strict=True)]
        assert draw_rows(logits, positions, chosen) == alone


def test_greedy_takes_the_lowest_id_among_equals_and_passes_over_nan() -> None:
    nan = math.nan
    rows = row_of([[1, 3, 3, 0], [nan, 2, 5, 5], [nan, nan, nan, nan], [-math.inf, nan, -math.inf, nan]])  # type: ignore[list-item]
    assert draw_rows(rows, [0] * 4, [Sampling()] * 4) == [1, 2, 0, 0]
    assert [draw(row, 0, Sampling()) for row in rows] == [1, 2, 0, 0]
    ids = np.array([40, 30, 20, 10], dtype=np.int64)
    assert [draw(row, 0, Sampling(), ids) for row in rows] == [20, 10, 10, 10]
    assert all(type(token) is int for token in draw_rows(rows, [0] * 4, [Sampling()] * 4))


def test_no_rows_draw_no_tokens() -> None:
    assert draw_rows(np.zeros((0, 8), dtype=np.float32), [], []) == []


def test_sampled_rows_need_a_position_and_settings_each() -> None:
    with pytest.raises(ValueError):
        draw_rows(np.zeros((2, 8), dtype=np.float32), [0], [Sampling(temperature=1.0)] * 2)


@pytest.mark.parametrize("levels", [40, 3, 1])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(5, 1.0, 0, 0.95),
        Sampling(6, 0.2, 0, 0.5),
        Sampling(7, 3.0, 0, 0.999, 0.02),
        Sampling(8, 1.0, 1500, 0.9),
        Sampling(9, 0.01, 0, 1e-9),
        Sampling(10, 0.05, 0, 1 - 2**-53),
        Sampling(11, 1.0),
    ],
)
@pytest.mark.slow
def test_a_long_row_equals_the_slow_reference(sampling: Sampling, levels: int) -> None:
    generator = np.random.default_rng(levels)
    for position in range(6):
        row = (generator.integers(0, levels, 3000) / 4).astype(np.float32)
        assert draw(row, position, sampling) == reference.draw(row.tolist(), position, sampling)


@pytest.mark.parametrize("vocabulary", [1023, 1024, 1025, 1026])
@pytest.mark.slow
def test_the_nucleus_is_the_same_on_both_sides_of_the_size_where_it_stops_sorting_all(vocabulary: int) -> None:
    generator = np.random.default_rng(vocabulary)
    for position in range(40):
        row = generator.normal(0, 3, vocabulary).astype(np.float32).round(1)
        sampling = Sampling(position, 0.8, 0, 0.9)
        assert draw(row, position, sampling) == reference.draw(row.tolist(), position, sampling)


def test_a_long_nucleus_reaches_down_to_the_last_candidate_that_weighs_anything() -> None:
    row = row_of([0.0, *[-27.4] * 1500, *[-27.9] * 1500])
    sampling = Sampling(4, 1.0, 0, 1 - 2**-53)
    kept = reference.kept([(float(v), i) for i, v in enumerate(row)], sampling)
    assert len(kept) == 1501
    for position in range(3):
        assert draw(row, position, sampling) == reference.draw(row.tolist(), position, sampling)


@pytest.mark.parametrize("top_p", [1e-9, 0.5])
def test_a_long_row_of_equals_has_a_nucleus_however_large_its_logits(top_p: float) -> None:
    row = np.full(1030, 1e8, dtype=np.float32)
    sampling = Sampling(4, 1.0, 0, top_p)
    for position in range(3):
        assert draw(row, position, sampling) == reference.draw(row.tolist(), position, sampling)


def test_a_candidate_that_weighs_nothing_can_be_drawn_where_no_nucleus_is_cut() -> None:
    row, seed = row_of([0.0, -30.0]), 11060275429047018169  # the seed that gives id 1 the highest noise there is
    assert noise(seed, 0, np.arange(2)).tolist() == pytest.approx([2.2349163, 53 * math.log(2)])
    assert draw(row, 0, Sampling(seed, 1.0)) == 1
    assert draw(row, 0, Sampling(seed, 1.0, 0, 1 - 2**-53)) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 50, 700, 2999])
def test_the_best_candidates_are_the_first_in_the_order(count: int) -> None:
    generator = np.random.default_rng(count)
    for energy in (generator.normal(0, 3, 3000), generator.normal(0, 3, 3000).round(1)):
        ids = generator.permutation(9000)[:3000]
        expected = np.lexsort((ids, energy))[:count]
        assert sorted(best(energy, ids, count)) == sorted(expected)


def test_the_whole_of_a_nucleus_can_be_drawn_and_nothing_past_it() -> None:
    row = np.log(row_of([0.5, 0.25, 0.125, 0.0625, 0.0625]))
    for top_p, count in ((0.5, 1), (0.51, 2), (0.75, 2), (0.875, 3), (0.9, 4), (0.95, 5)):
        sampling = Sampling(3, 1.0, 0, top_p)
        kept = reference.kept([(float(v), i) for i, v in enumerate(row)], sampling)
        assert len(kept) in (count, count + 1)  # float32 logarithms move the exact shares a little
        assert {draw(row, position, sampling) for position in range(600)} == {token for _, token in kept}


def test_min_p_keeps_candidates_by_their_share_of_the_likeliest() -> None:
    row = np.log(row_of([0.5, 0.3, 0.1, 0.1]))
    for min_p, expected in ((0.7, {0}), (0.5, {0, 1}), (0.15, {0, 1, 2, 3})):
        assert {draw(row, p, Sampling(1, 1.0, min_p=min_p)) for p in range(400)} == expected
    assert {draw(row, p, Sampling(1, 1.0, min_p=5.0)) for p in range(50)} == {0}


def test_min_p_follows_the_nucleus_and_does_not_move_its_cut() -> None:
    row = np.log(row_of([0.4, 0.3, 0.2, 0.1]))
    assert {draw(row, p, Sampling(1, 1.0, 0, 0.85, 0.3)) for p in range(400)} == {0, 1, 2}
    assert {draw(row, p, Sampling(1, 1.0, 0, 0.6, 0.3)) for p in range(400)} == {0, 1}


def test_the_nucleus_is_cut_among_the_top_k_only() -> None:
    row = np.log(row_of([0.3, 0.3, 0.2, 0.2]))
    assert {draw(row, p, Sampling(1, 1.0, 2, 0.55)) for p in range(400)} == {0, 1}
    assert {draw(row, p, Sampling(1, 1.0, 2, 0.45)) for p in range(400)} == {0}


def test_equal_scores_go_to_the_earlier_candidate_in_the_order() -> None:
    # So large that the noise vanishes in the sum: scores tie exactly.
    row = row_of([1e30, 1e30, 1e30])
    assert {draw(row, p, Sampling(1, 1.0)) for p in range(50)} == {0}
    backwards = np.array([9, 5, 7], dtype=np.int64)
    assert {draw(row, p, Sampling(1, 1.0), backwards) for p in range(50)} == {5}


def test_of_equal_scores_the_likelier_candidate_wins_before_the_lower_id() -> None:
    ids = np.arange(40, dtype=np.int64)
    energy = noise(3, 8, ids)  # every score is exactly zero
    assert winner(energy, ids, 8, 3) == int(energy.argmin()) != 0
    assert winner(np.repeat(energy[:1], 2), np.array([0, 0]), 8, 3) == 0
    pair = np.array([int(energy.argmax()), int(energy.argmin())])
    assert winner(energy[pair], ids[pair], 8, 3) == 1
    energy[7:12] = energy[9] - 50.0  # far ahead, and apart by their noise alone
    assert winner(energy, ids, 8, 3) == 7 + int(noise(3, 8, ids[7:12]).argmax())


@pytest.mark.parametrize("temperature", [math.inf, 1e300, 1e200, 1e-320, math.nan])
def test_no_temperature_crashes_a_draw(temperature: float) -> None:
    row = row_of([1.0, -math.inf, 1e-45, 2e-45, math.nan, 3e38])
    for top_p in (1.0, 0.5):
        token = draw(row, 1, Sampling(1, temperature, 0, top_p))
        assert token in (0, 2, 3, 5)


@pytest.mark.parametrize("top_p", [-0.5, 0.0, 1.0, 1.5, math.inf])
def test_a_top_p_outside_zero_and_one_is_no_top_p(top_p: float) -> None:
    row = row_of([0.0, 1.0, 2.0])
    drawn = [draw(row, p, Sampling(4, 1.0, 0, top_p)) for p in range(60)]
    assert drawn == [draw(row, p, Sampling(4, 1.0)) for p in range(60)]
    assert set(drawn) == {0, 1, 2}


def test_a_top_k_beyond_the_vocabulary_is_no_top_k() -> None:
    row = row_of([0.0, 1.0, 2.0])
    wide, off = Sampling(4, 1.0, 10**9), Sampling(4, 1.0)
    assert [draw(row, p, wide) for p in range(60)] == [draw(row, p, off) for p in range(60)]


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.integers(0, 2**32 - 1), st.integers(1, 200))
@pytest.mark.slow
def test_noise_and_weights_of_a_candidate_do_not_depend_on_its_neighbours(seed: int, count: int) -> None:
    generator = np.random.default_rng(seed)
    ids = generator.integers(0, 300_000, count)
    energy, least = energies(generator.normal(0, 5, count).astype(np.float32), 0.7)
    together = noise(seed, 17, ids).tolist(), weights(energy, least).tolist()
    alone = (
        [noise(seed, 17, ids[i : i + 1])[0] for i in range(count)],
        [weights(energy[i : i + 1], least)[0] for i in range(count)],
    )
    assert together == alone
    assert together[0] == pytest.approx([reference.gumbel(seed, 17, i) for i in ids.tolist()], rel=1e-14, abs=1e-14)


def test_the_needed_weight_is_exact_where_floats_would_round() -> None:
    total = 2**60 + 1
    assert weight_needed(0.5, total) == 2**59 + 1
    assert weight_needed(1 - 2**-53, total) == total - 128
    assert weight_needed(5e-324, total) == 1
    assert weight_needed(0.1, 10) == 2  # the float 0.1 lies above one tenth
