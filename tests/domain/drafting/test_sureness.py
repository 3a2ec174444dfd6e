"""A drafter is taken to be as sure as it proves: more drafts of a sure one land, and no fewer of another."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tensorfold.domain.drafting.landed import decided
from tensorfold.domain.drafting.lattice import PUBLISHED, Lattice, search
from tensorfold.domain.drafting.sureness import SPREADS, Sureness
from tensorfold.domain.sampling import Sampling, draw
from tests.domain.drafting.lattices import random_lattice
from tests.domain.drafting.plain_search import plain_nats

DEPTH, CANDIDATES, VOCABULARY = 7, 16, 400
GREEDY = Sampling()


def drafted(seed: int, error: float, sampling: Sampling) -> tuple[Lattice, list[int]]:
    """A lattice of logits that are off by `error`, and what the target draws from the right ones."""
    rng = np.random.default_rng(seed)
    ids, scores, pairs, true, above = [], [], [], [], 1
    for depth in range(DEPTH):
        logits = 2.0 * rng.normal(size=VOCABULARY)
        logits[rng.choice(VOCABULARY, 6, replace=False)] += rng.uniform(3.0, 8.0, 6)
        guessed = logits + error * rng.normal(size=VOCABULARY)
        ids.append(np.argsort(-guessed)[:CANDIDATES].astype(np.int64))
        scores.append(guessed[ids[-1]])
        pairs.append(np.zeros((above, CANDIDATES)))
        true.append(draw(logits.astype(np.float32), 1 + depth, sampling))
        above = CANDIDATES
    return Lattice(tuple(ids), tuple(scores), tuple(pairs)), true


def landed(error: float, sampling: Sampling, *, learning: bool, rounds: int = 200) -> tuple[float, Sureness]:
    """Drafts kept a round, and what was learned."""
    sureness, kept = Sureness(), 0
    for seed in range(rounds):
        settings = replace(sampling, seed=seed)
        lattice, true = drafted(seed, error, settings)
        found = search(lattice, 0, settings, 15, "head", sureness.settings(4) if learning else PUBLISHED)
        assert found is not None
        length = decided(found, true).kept
        kept += length
        sureness.observe(lattice, 0, settings, true[: length + 1])
    return kept / rounds, sureness


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0, 1.0, 20, 0.95), Sampling(0, 0.7)])
@pytest.mark.slow
def test_more_of_a_sure_drafter_lands_once_it_is_known(sampling: Sampling) -> None:
    plain, _ = landed(0.5, sampling, learning=False)
    better, sureness = landed(0.5, sampling, learning=True)
    assert better > 1.25 * plain and sureness.settings(4).spread < PUBLISHED.spread


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(0, 1.0)])
@pytest.mark.slow
def test_nothing_is_lost_with_an_unsure_one(sampling: Sampling) -> None:
    plain, _ = landed(3.0, sampling, learning=False)
    learned, sureness = landed(3.0, sampling, learning=True)
    assert learned > 0.93 * plain and sureness.settings(4).spread >= PUBLISHED.spread


def test_it_begins_as_published_and_a_few_tokens_do_not_move_it() -> None:
    sureness = Sureness()
    assert sureness.settings(4) == PUBLISHED and sureness.settings(1) == replace(PUBLISHED, branches=1)
    for seed in range(2):
        lattice, true = drafted(seed, 1.0, GREEDY)
        sureness.observe(lattice, 0, GREEDY, true[:1])
    assert sureness.settings(4) == PUBLISHED
    assert (PUBLISHED.spread, PUBLISHED.noise) in SPREADS and sorted(SPREADS) == list(SPREADS)


def test_a_token_that_is_no_candidate_tells_nothing_and_ends_the_telling() -> None:
    one, other = Sureness(), Sureness()
    lattice, true = drafted(1, 0.1, GREEDY)
    stranger = next(i for i in range(VOCABULARY) if i not in lattice.ids[1])
    for _ in range(50):
        one.observe(lattice, 0, GREEDY, [true[0], stranger, *true[2:]])
        other.observe(lattice, 0, GREEDY, true[:1])
    assert one._nats.tolist() == other._nats.tolist() and one._nats.any()
    before = one._nats.tolist()
    one.observe(lattice, 0, GREEDY, [])
    one.observe(Lattice((), (), ()), 0, GREEDY, true)
    assert one._nats.tolist() == before


def test_scores_that_are_no_numbers_teach_nothing_wrong() -> None:
    sureness = Sureness()
    lattice = random_lattice(1, [5, 5])
    for odd in (math.nan, math.inf, -math.inf, 1e308):
        scores = tuple(np.where(np.arange(5) == 2, odd, each) for each in lattice.scores)
        for token in lattice.ids[0].tolist():
            sureness.observe(replace(lattice, scores=scores), 0, Sampling(1, 1.0), [token, int(lattice.ids[1][0])])
    assert np.isfinite(sureness._nats).all()
    assert sureness.settings(4).spread in [spread for spread, _ in SPREADS]


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(3, 0.3), Sampling(4, 1.7, 5)])
@pytest.mark.parametrize("shape", [(16,) * 7, (4, 4, 9, 9, 2, 16), (1, 3)])
def test_likelihoods_are_those_of_one_token_after_another_to_the_last_bit(
    shape: tuple[int, ...], sampling: Sampling
) -> None:
    for seed in range(20):
        lattice, chance = random_lattice(seed, shape), np.random.default_rng(seed)
        tokens = [int(chance.choice(ids)) for ids in lattice.ids]
        tokens[seed % len(tokens)] += 1000 * (seed % 3 == 0)
        sureness = Sureness()
        sureness.observe(lattice, 40, sampling, tokens)
        assert sureness._nats.tolist() == plain_nats(lattice, 40, sampling, tokens).tolist()
