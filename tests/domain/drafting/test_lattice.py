"""Trees out of a lattice: best first by the stated scores, the same every time, well-formed whatever the scores are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting import lattice as drafting_lattice
from tensorfold.domain.drafting.lattice import PUBLISHED, Lattice, SearchSettings, search
from tensorfold.domain.drafting.sources import Proposal
from tensorfold.domain.sampling import Sampling, noise
from tests.domain.drafting.lattices import all_paths, paths_of, random_lattice
from tests.domain.drafting.plain_search import plain_search

GREEDY = Sampling()
ALL = replace(PUBLISHED, branches=99)
samplings = st.builds(
    Sampling,
    seed=st.integers(0, 2**64 - 1),
    temperature=st.sampled_from([0.0, 1e-7, 0.3, 1.0, 1.7, 1e9]),
    top_k=st.sampled_from([0, 1, 3, 20]),
    top_p=st.sampled_from([1.0, 0.9, 0.1]),
    min_p=st.sampled_from([0.0, 0.2, 1.0]),
)
widths = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def parents_of(found: Proposal) -> tuple[int, ...]:
    return tuple(range(len(found))) if found.parents is None else found.parents


@settings(derandomize=True, deadline=None, max_examples=120)
@given(st.integers(0, 2**32), widths, samplings, st.integers(1, 20), st.integers(1, 6))
@pytest.mark.slow
def test_a_tree_is_well_formed_within_its_budget_and_best_first(
    seed: int, shape: list[int], sampling: Sampling, budget: int, branches: int
) -> None:
    lattice = random_lattice(seed, shape)
    found = search(lattice, 40, sampling, budget, "head", SearchSettings(branches=branches))
    assert found is not None and 1 <= len(found) <= budget and found.source == "head"
    parents = parents_of(found)
    paths = paths_of(found.tokens, parents)
    assert all(0 <= parent <= row for row, parent in enumerate(parents))
    assert len(set(paths)) == len(paths), "two rows hold one path"
    assert all(path[-1] in lattice.ids[len(path) - 1] for path in paths)
    assert list(found.chances) == sorted(found.chances, reverse=True) and found.chances[-1] >= 0.0
    assert all(found.chances[row] <= found.chances[parent - 1] for row, parent in enumerate(parents) if parent)
    assert max(parents.count(parent) for parent in parents) <= branches
    for fewer in range(1, budget):
        assert search(lattice, 40, sampling, fewer, "head", SearchSettings(branches=branches)) in (
            replace(found.first(fewer), parents=found.first(fewer).parents),
            replace(found.first(fewer), parents=None),
        )


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.sampled_from([0.0, 0.6, 1.0, 2.0])
)
@pytest.mark.slow
def test_the_rows_are_those_that_an_exhaustive_search_finds_likeliest(
    seed: int, shape: list[int], temperature: float
) -> None:
    lattice, sampling = random_lattice(seed, shape), Sampling(seed, temperature)
    values = all_paths(lattice, 7, sampling, ALL)
    found = search(lattice, 7, sampling, 15, "head", ALL)
    assert found is not None and len(found) == min(15, len(values))
    best = sorted(values.values(), reverse=True)[: len(found)]
    assert [math.log(chance) for chance in found.chances] == pytest.approx(best, abs=1e-9)
    for path, chance in zip(paths_of(found.tokens, parents_of(found)), found.chances, strict=True):
        assert math.log(chance) == pytest.approx(values[path], abs=1e-9)


def test_the_greedy_path_comes_first_of_all_branches_and_alone_when_branches_are_one() -> None:
    lattice = random_lattice(3, [6] * 5)
    chain = search(lattice, 0, GREEDY, 5, "head", SearchSettings(branches=1))
    tree = search(lattice, 0, GREEDY, 15, "head")
    assert chain is not None and tree is not None and chain.parents is None and tree.parents is not None
    greedy, above = [], 0
    for ids, scores, pair in zip(lattice.ids, lattice.scores, lattice.pair, strict=True):
        above = int((scores + PUBLISHED.pair * pair[above]).argmax())
        greedy.append(int(ids[above]))
    assert chain.tokens == tuple(greedy)
    first, row = [], 0
    while row in tree.parents:
        row = tree.parents.index(row) + 1
        first.append(tree.tokens[row - 1])
    assert first == greedy[: len(first)] and len(first) >= 2


def test_of_equal_chances_the_lower_id_comes_first() -> None:
    flat = Lattice((np.array([9, 4, 7]),), (np.zeros(3),), (np.zeros((1, 3)),))
    found = search(flat, 0, GREEDY, 9, "head")
    assert found is not None and found.tokens == (4, 7, 9) and found.parents == (0, 0, 0)
    assert found.chances == pytest.approx((1 / 3,) * 3)


def test_the_targets_own_noise_decides_among_equal_candidates() -> None:
    ids = np.arange(16, dtype=np.int64)
    flat = Lattice((ids, ids), (np.zeros(16),) * 2, (np.zeros((1, 16)), np.zeros((16, 16))))
    for seed in range(50):
        found = search(flat, 10, Sampling(seed, 1.0), 15, "head", SearchSettings(branches=1))
        assert found is not None
        assert found.tokens == tuple(int(noise(seed, position, ids).argmax()) for position in (11, 12))


@pytest.mark.parametrize("sampling", [Sampling(1, 1.0, 2), Sampling(1, 1.0, 0, 0.5), Sampling(1, 1.0, 0, 1.0, 0.3)])
def test_what_the_request_would_leave_out_falls_behind(sampling: Sampling) -> None:
    scores = np.array([2.0, 1.9, 0.0, -0.1, -0.2])
    lattice = Lattice((np.arange(5, dtype=np.int64),), (scores,), (np.zeros((1, 5)),))
    unlucky = 0
    for seed in range(200):
        plain = search(lattice, 0, Sampling(seed, 1.0), 9, "head", ALL)
        cut = search(lattice, 0, replace(sampling, seed=seed), 9, "head", ALL)
        assert plain is not None and cut is not None
        chances, others = (
            dict(zip(cut.tokens, cut.chances, strict=True)),
            dict(zip(plain.tokens, plain.chances, strict=True)),
        )
        assert all(chances[token] < others[token] for token in (2, 3, 4))
        unlucky += plain.tokens[0] > 1 and cut.tokens[0] <= 1
    assert unlucky > 10


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.data())
@pytest.mark.slow
def test_scores_that_are_no_numbers_cost_only_their_own_candidates(data: st.DataObject) -> None:
    lattice = random_lattice(data.draw(st.integers(0, 99)), [5, 5, 5])
    odd = st.sampled_from([math.nan, -math.inf, math.inf, 1e308, -1e308, 0.0])
    spoilt = [scores.copy() for scores in (*lattice.scores, *lattice.pair)]
    for scores in spoilt:
        for _ in range(data.draw(st.integers(0, 4))):
            scores.flat[data.draw(st.integers(0, scores.size - 1))] = data.draw(odd)
    worse = Lattice(lattice.ids, tuple(spoilt[:3]), tuple(spoilt[3:]))
    with np.errstate(all="raise", under="ignore"):
        found = search(worse, 0, data.draw(samplings), 15, "head")
    if found is not None:
        assert all(0.0 <= chance <= 1.0 for chance in found.chances)


def test_a_candidate_without_a_chance_is_never_a_row() -> None:
    never = Lattice((np.array([5, 6]),), (np.array([-math.inf, math.nan]),), (np.zeros((1, 2)),))
    assert search(never, 0, GREEDY, 5, "head") is None
    one = replace(never, scores=(np.array([-math.inf, 0.0]),))
    found = search(one, 0, Sampling(1, 1.0), 5, "head")
    assert found is not None and found.tokens == (6,) and found.chances == (1.0,)


def test_nothing_to_search_gives_no_proposal() -> None:
    empty = Lattice((), (), ())
    assert search(empty, 0, GREEDY, 15, "head") is None
    assert search(random_lattice(1, [3]), 0, GREEDY, 0, "head") is None
    ended = Lattice(
        (np.array([1]), np.array([], np.int64)), (np.zeros(1), np.zeros(0)), (np.zeros((1, 1)), np.zeros((1, 0)))
    )
    found = search(ended, 0, GREEDY, 15, "head")
    assert found is not None and found.tokens == (1,)


def test_parts_that_do_not_fit_are_refused() -> None:
    good = random_lattice(1, [3, 3])
    for bad in (
        replace(good, scores=good.scores[:1]),
        replace(good, pair=(good.pair[1], good.pair[1])),
        replace(good, scores=(good.scores[0][:2], good.scores[1])),
        replace(good, ids=(np.array([4, 4, 5]), good.ids[1])),
    ):
        with pytest.raises(ValueError):
            search(bad, 0, GREEDY, 15, "head")


@pytest.mark.parametrize("depth", [7, 15])
def test_a_search_makes_each_depth_once_and_asks_what_follows_no_more_rows_than_it_has(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    asked: list[int] = []

    class Counted(drafting_lattice._Depth):
        def __init__(self, lattice: Lattice, depth: int, *rest: Any) -> None:
            made.append(depth)
            super().__init__(lattice, depth, *rest)

        def best(self, above: int, value: float) -> drafting_lattice._Offer:
            asked.append(above)
            return super().best(above, value)

    monkeypatch.setattr(drafting_lattice, "_Depth", Counted)
    found = search(random_lattice(3, [16] * depth, 248_320), 0, Sampling(5, 1.0, 20, 0.95), 15, "head")
    assert found is not None and len(found.tokens) == 15
    assert made == sorted(set(made)) and max(made) < depth
    assert len(asked) <= 15


def fouled(lattice: Lattice, seed: int) -> Lattice:
    """A lattice some of whose scores and pairs are no numbers, or too large."""
    rng = np.random.default_rng(seed)
    wild = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 3e29, 1e200])

    def fouled_part(part: np.ndarray) -> np.ndarray:
        return np.where(rng.random(part.shape) < 0.2, rng.choice(wild, part.shape), part)

    return Lattice(lattice.ids, tuple(map(fouled_part, lattice.scores)), tuple(map(fouled_part, lattice.pair)))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 16), min_size=1, max_size=8),
    samplings,
    st.integers(1, 20),
    st.integers(1, 6),
    st.booleans(),
)
def test_rows_and_chances_are_those_of_the_plain_search_to_the_last_bit(
    seed: int, shape: list[int], sampling: Sampling, budget: int, branches: int, foul: bool
) -> None:
    lattice = random_lattice(seed, shape)
    if foul:
        lattice = fouled(lattice, seed)
    asked = 40, sampling, budget, "head", SearchSettings(branches=branches)
    assert search(lattice, *asked) == plain_search(lattice, *asked)
