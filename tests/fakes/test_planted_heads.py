"""The oracle behind a head: as right as its profile says, at the head's full cost, and equal to the serial reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tensorfold.application.ports.target_model import Chain, Lattice, ModelCosts, ProposeSpec, Span
from tensorfold.application.settings import DraftSettings, EngineSettings
from tensorfold.domain.drafting.lattice import search
from tensorfold.domain.sampling import Sampling, derive_seed
from tests.application.house import idle, law, read, request, serving
from tests.contracts.candidates import checks_of, names
from tests.contracts.target_model import head_checks, lane_checks, row_checks
from tests.contracts.target_model.rows import ModelSubject
from tests.fakes.hash_head import AnyHead, HashDrafter, HashHead
from tests.fakes.hash_model import HashModel
from tests.fakes.head_profiles import Profile
from tests.fakes.planted_heads import PlantedHeads, Replies
from tests.fakes.serial import SerialCase, SerialReply, serial_references

LAW = law(23, vocabulary=200)
CHEAP = ModelCosts(((1, 1.0), (16, 1.1), (64, 1.5)), 0.01, head_ms=(0.001,) * 8)
FORCED = EngineSettings(parallel=4, force_windows=True)
SAMPLINGS = (Sampling(), Sampling(5, 1.0, 20, 0.95), Sampling(6, 0.7, 0, 0.9, 0.02), Sampling(7, 1.5))
CASES = [SerialCase((i, 3 * i % 50, 9), 100, SAMPLINGS[i % 4]) for i in range(8)]
EXPECTED = serial_references(LAW, CASES)
WRONG: tuple[AnyHead, ...] = (HashHead((0.0,) * 7), HashDrafter((0.0,) * 7, width=16))
STEEP = Profile(((0.9,), (0.7,), (0.5,)))


def known(cases: Sequence[SerialCase] = CASES, expected: Sequence[SerialReply] = EXPECTED) -> Replies:
    table = {(case.prompt, case.sampling): reply.tokens for case, reply in zip(cases, expected, strict=True)}
    return lambda prompt, sampling: table.get((prompt, sampling))


def served(head: AnyHead, profile: Profile, engine: EngineSettings = FORCED, **settings: Any) -> Any:
    """Serve every case, compare each with its serial reply, and give the counters."""
    inner = HashModel(LAW, head=head, costs=CHEAP, **settings)
    with serving(PlantedHeads(inner, known(), profile), settings=engine) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in CASES]]
        idle(scheduler)
    assert [tuple(one.ids) for one in got] == [reply.tokens for reply in EXPECTED]
    assert not inner.misuses and inner.lanes() == ()
    return scheduler.counters


@pytest.mark.parametrize("head", WRONG, ids=["chain", "lattice"])
@pytest.mark.slow
def test_chains_land_as_deep_as_the_profile_says(head: AnyHead) -> None:
    counters = served(head, STEEP, tree_width=1)
    expected = 0.9 * (1 + 0.7 * (1 + 0.5 * (1 + 0.5 * (1 + 0.5 * (1 + 0.5 * (1 + 0.5))))))
    assert counters.kept_total / counters.rounds / _streams(counters) == pytest.approx(expected, rel=0.12)


def _streams(counters: Any) -> float:
    """Windows a round: the replies' tokens beyond kept drafts are one a window."""
    return float((counters.completion_tokens - counters.kept_total) / counters.rounds)


@pytest.mark.slow
def test_a_tree_lands_what_lies_at_any_rank_of_its_reach() -> None:
    ranks = Profile(((0.6, 0.2, 0.1),))
    tree = served(HashDrafter((0.0,) * 7, width=16), ranks)
    chain = served(HashDrafter((0.0,) * 7, width=16), ranks, tree_width=1)
    lengths = [each.kept_total / (each.completion_tokens - each.kept_total) for each in (tree, chain)]
    assert lengths[0] > 1.4 * lengths[1] > 1.4 * 1.1


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_planted_lattice_is_searched_with_the_stated_chances(sampling: Sampling) -> None:
    index = SAMPLINGS.index(sampling)
    case, reply = CASES[index], EXPECTED[index].tokens
    ranks = Profile(((0.5, 0.25, 0.125),))
    model = PlantedHeads(HashModel(LAW, head=WRONG[1]), known(), ranks)
    lane = model.open(64)
    model.prefill(lane, np.array(case.prompt, np.int64), Span(0, 2))
    (offer,) = model.propose([ProposeSpec(lane, case.prompt[-1], 7, case.sampling)])
    assert isinstance(offer, Lattice)
    found = search(offer, 2, case.sampling, 15, "head")
    assert found is not None
    first = [found.chances[found.tokens.index(token)] for token in offer.ids[0][:3].tolist() if token in found.tokens]
    if sampling.top_p < 1.0:  # what the request would leave out moves chances a little, in the search as in the target
        assert first == sorted(first, reverse=True) and 0.4 < first[0] < 0.9
    else:
        assert first == pytest.approx((0.5, 0.25, 0.125), rel=1e-6)
    for depth, ids in enumerate(offer.ids):
        rank = ranks.rank(derive_seed(case.prompt, ranks.seed), depth, 3 + depth)
        assert (reply[depth] in ids) == (rank is not None)
        assert rank is None or int(ids[rank]) == reply[depth]


def test_the_policies_see_the_profiles_confidence_and_the_head_works_to_its_full_depth() -> None:
    inner = HashModel(LAW, head=HashHead((0.0,) * 7))
    model = PlantedHeads(inner, known(), STEEP)
    lane = model.open(64)
    model.prefill(lane, np.array(CASES[0].prompt, np.int64), Span(0, 2))
    (offer,) = model.propose([ProposeSpec(lane, 9, 5, CASES[0].sampling, min_confidence=0.99)])
    assert isinstance(offer, Chain) and offer.confidence == (0.9, 0.7, 0.5, 0.5, 0.5)


@pytest.mark.slow
def test_rounds_by_cost_and_confidence_stay_exact() -> None:
    for head in WRONG:
        heads = DraftSettings(mtp_drafts=4, mtp_confidence=0.6)
        served(head, STEEP, EngineSettings(parallel=3, heads=heads))


def test_replies_that_are_not_known_and_lanes_without_a_past_are_left_to_the_head() -> None:
    inner = HashModel(LAW, head=HashHead((1.0,)))
    model = PlantedHeads(inner, known(), Profile(((0.0,),)))
    strange, empty = model.open(64), model.open(64)
    model.prefill(strange, np.array([50, 51, 52], np.int64), Span(0, 2))
    specs = [ProposeSpec(strange, 52, 1, Sampling()), ProposeSpec(empty, 1, 1, Sampling())]
    assert model.propose(specs) == inner.propose(specs)


def test_what_is_right_follows_from_the_streams_key_alone() -> None:
    places = [(depth, position) for depth in range(4) for position in range(300)]
    ranks = [STEEP.rank(77, *place) for place in places]
    assert ranks == [Profile(STEEP.ranks, seed=9).rank(77, *place) for place in places]
    assert ranks != [STEEP.rank(78, *place) for place in places]
    assert sum(rank == 0 for rank in ranks[:300]) == pytest.approx(270, abs=20)
    assert set(ranks) == {0, None}


@pytest.mark.parametrize("ranks", [(), ((),), ((-0.1,),), ((0.7, 0.4),)])
def test_a_profile_holds_chances(ranks: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ValueError):
        Profile(ranks)


# What a planted head says depends on the prompt its lane was given, which one of the checks varies.
CHECKS = [
    check
    for check in checks_of(lane_checks, row_checks, head_checks)
    if check is not head_checks.a_head_drafts_from_everything_its_lane_absorbed
]


@pytest.mark.parametrize("check", CHECKS, ids=names(CHECKS))
@pytest.mark.slow
def test_a_planted_model_keeps_the_ports_promises(check: Any) -> None:
    for head in WRONG:
        model = PlantedHeads(HashModel(head=head, batch_rows=32), lambda prompt, sampling: (1, 2, 3, 4), STEEP)
        check(ModelSubject(model, strict=True))
