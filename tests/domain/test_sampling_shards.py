"""A row split in parts draws what the whole row draws."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tensorfold.domain.sampling import Sampling, draw
from tensorfold.domain.shards import ShardCandidates, draw_shards, shard_candidates
from tests.domain.test_sampling_rules import SAMPLINGS, WILD_ROWS


def split(
    row: NDArray[np.float32],
    parts: int,
    sampling: Sampling,
    position: int,
    most: int,
    ids: NDArray[np.int64] | None = None,
) -> list[ShardCandidates]:
    ids = np.arange(len(row), dtype=np.int64) if ids is None else ids
    finite = row[~np.isnan(row)]
    top = float(finite.max()) if len(finite) else -math.inf
    return [
        shard_candidates(part, names, position, sampling, top, most)
        for part, names in zip(np.array_split(row, parts), np.array_split(ids, parts), strict=True)
    ]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(WILD_ROWS, SAMPLINGS, st.integers(2, 8), st.integers(0, 9999), st.integers(1, 12), st.booleans())
@example([math.nan] * 8, Sampling(temperature=1.0, top_p=0.5), 8, 0, 1, False)
@pytest.mark.slow
def test_a_split_row_draws_as_a_whole_one_or_asks_for_more(
    values: list[float], sampling: Sampling, parts: int, position: int, most: int, shuffled: bool
) -> None:
    row = np.array(values * 8, dtype=np.float32)
    whole = draw(row, position, sampling)
    ids = np.arange(len(row), dtype=np.int64)
    if shuffled:
        ids = np.random.default_rng(position).permutation(ids)
        row = row[ids]
    answer = draw_shards(split(row, parts, sampling, position, most, ids), position, sampling)
    assert answer in (None, whole)
    assert draw_shards(split(row, parts, sampling, position, len(row), ids), position, sampling) == whole


def test_the_parts_totals_decide_the_cut_that_their_candidates_alone_would_misplace() -> None:
    row = np.log(np.array([0.3, 0.25, 0.15, 0.1, 0.1, 0.1], dtype=np.float32))
    sampling = Sampling(2, 1.0, 0, 0.69)
    answers = [draw_shards(split(row, 2, sampling, p, 2), p, sampling) for p in range(200)]
    assert set(answers) == {None}
    answers = [draw_shards(split(row, 2, sampling, p, 3), p, sampling) for p in range(200)]
    assert answers == [draw(row, p, sampling) for p in range(200)]
    assert set(answers) == {0, 1, 2}


def test_a_nucleus_inside_what_was_sent_needs_no_more() -> None:
    row = np.log(np.array([0.4, 0.05, 0.05, 0.4, 0.05, 0.05], dtype=np.float32))
    sampling = Sampling(2, 1.0, 0, 0.79)
    shards = split(row, 2, sampling, 0, 2)
    assert [s.ids.tolist() for s in shards] == [[0, 1], [3, 4]]
    assert not any(s.complete for s in shards)
    answers = [draw_shards(split(row, 2, sampling, p, 2), p, sampling) for p in range(200)]
    assert answers == [draw(row, p, sampling) for p in range(200)]
    # Of one candidate each, the first part's may be followed by its equal.
    assert draw_shards(split(row, 2, sampling, 0, 1), 0, sampling) is None


def test_a_nucleus_that_ends_in_a_tie_with_the_last_one_sent_is_decided_by_id() -> None:
    row = np.zeros(6, dtype=np.float32)
    for top_p, known in ((1 / 6, True), (2 / 6 - 1e-9, True), (0.5, False)):
        sampling = Sampling(2, 1.0, 0, top_p)
        answers = [draw_shards(split(row, 2, sampling, p, 2), p, sampling) for p in range(50)]
        assert answers == ([draw(row, p, sampling) for p in range(50)] if known else [None] * 50)


@pytest.mark.parametrize(
    ("sampling", "sent", "complete"),
    [
        (Sampling(), 1, True),
        (Sampling(top_p=0.9), 1, True),
        (Sampling(1, 1.0), 1, True),
        (Sampling(1, 1.0, 1), 1, False),
        (Sampling(1, 1.0, 1, 0.9), 1, False),
        (Sampling(1, 1.0, 3, 0.9), 3, False),
        (Sampling(1, 1.0, 10), 10, True),
        (Sampling(1, 1.0, 0, 0.9), 5, False),
    ],
)
def test_a_part_sends_no_more_than_the_settings_need(sampling: Sampling, sent: int, complete: bool) -> None:
    row = np.arange(20).astype(np.float32)
    shards = split(row, 2, sampling, 0, 5)
    assert [(len(s.ids), s.complete) for s in shards] == [(sent, complete)] * 2
    for shard in shards:
        assert shard.logits.tolist() == sorted(shard.logits.tolist(), reverse=True)


def test_a_part_is_weighed_where_a_nucleus_is_cut_by_it_and_nowhere_else() -> None:
    row = np.log(np.array([1.0, 0.5, 0.25, 0.25], dtype=np.float32))
    totals = [s.total for s in split(row, 2, Sampling(1, 1.0, 0, 0.9), 0, 1)]
    assert totals == pytest.approx([1.5 * 2**40, 0.5 * 2**40], rel=1e-6)
    for sampling in (Sampling(), Sampling(1, 1.0), Sampling(1, 1.0, 1, 0.9), Sampling(1, 1.0, 2, 0.9)):
        assert [s.total for s in split(row, 2, sampling, 0, 1)] == [0, 0]


@pytest.mark.parametrize("top_k", [0, 1, 2])
@pytest.mark.parametrize("top_p", [0.7, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.2])
def test_every_position_of_a_split_row_draws_as_the_whole_row(top_k: int, top_p: float, min_p: float) -> None:
    row = np.array([0.0, 1.0, 0.5, 0.25, 1.0, 0.75], dtype=np.float32)
    sampling = Sampling(6, 1.0, top_k, top_p, min_p)
    answers = [draw_shards(split(row, 3, sampling, p, 2), p, sampling) for p in range(100)]
    assert answers == [draw(row, p, sampling) for p in range(100)]


def test_a_part_far_below_the_top_sends_nothing_under_min_p() -> None:
    row = np.array([0.0, 1.0, 10.0, 11.0], dtype=np.float32)
    shards = split(row, 2, Sampling(1, 1.0, min_p=0.1), 0, 5)
    assert [len(s.ids) for s in shards] == [0, 1]
    assert draw_shards(shards, 0, Sampling(1, 1.0, min_p=0.1)) in (2, 3)
