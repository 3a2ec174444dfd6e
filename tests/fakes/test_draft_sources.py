"""Oracles are right as often as told; broken sources are broken in the way they are named after."""

from __future__ import annotations

import random

import pytest

from tensorfold.domain.drafting.sources import Proposal, sound
from tests.fakes.broken_sources import (
    AdversarialSource,
    DuplicateSiblingsSource,
    ForeignIdSource,
    JunkSource,
    OverlongSource,
    RaisingSource,
)
from tests.fakes.clock import FakeClock
from tests.fakes.draft_sources import FakeSources, OracleSource, SilentSource, SlowSource, oracle_factory

REPLY = tuple(random.Random(1).randrange(64) for _ in range(3000))
PROMPT = [5, 6, 7]


def _at(emitted: int) -> list[int]:
    return [*PROMPT, *REPLY[:emitted]]


def test_an_oracle_is_right_at_each_depth_as_often_as_told() -> None:
    source = OracleSource(3, REPLY, 64, hits=(0.9, 0.5), seed=4)
    right = [0, 0, 0]
    for emitted in range(2000):
        offer = source.propose(_at(emitted), 3)
        assert offer is not None and offer.chances == pytest.approx((0.9, 0.45, 0.225))
        for depth in range(3):
            right[depth] += offer.tokens[depth] == REPLY[emitted + depth]
    assert [round(r / 2000, 1) for r in right] == [0.9, 0.5, 0.5]


def test_an_oracle_says_the_same_to_the_same_stream() -> None:
    one, two = (OracleSource(3, REPLY, 64, seed=4) for _ in range(2))
    assert [one.propose(_at(n), 5) for n in range(50)] == [two.propose(_at(n), 5) for n in range(50)]


def test_an_oracles_tree_holds_the_right_branch_among_wrong_siblings() -> None:
    source = OracleSource(3, REPLY, 64, hits=(1.0,), tree=True)
    offer = source.propose(_at(10), 12)
    assert offer is not None and offer.parents is not None and len(offer.tokens) == 12
    row, depth = 0, 0
    for index, (token, parent) in enumerate(zip(offer.tokens, offer.parents, strict=True)):
        if parent == row and token == REPLY[10 + depth]:
            row, depth = index + 1, depth + 1
    # Depths alternate between two and one wrong siblings: 3 + 2 + 3 + 2 + 2 rows.
    assert depth == 5


def test_an_oracle_falls_silent_where_its_knowledge_ends() -> None:
    source = OracleSource(3, REPLY[:10], 64)
    assert source.propose(_at(10), 4) is None
    offer = source.propose(_at(8), 4)
    assert offer is not None and len(offer) == 2


def test_an_adversary_is_wrong_first_and_right_afterwards() -> None:
    offer = AdversarialSource(3, REPLY, 64, "adversary").propose(_at(5), 6)
    assert offer is not None
    assert offer.tokens[0] != REPLY[5] and offer.tokens[1:] == REPLY[6:11] and offer.chances == (1.0,) * 6


def test_foreign_ids_stand_at_changing_places_and_everything_before_them_is_right() -> None:
    source, places = ForeignIdSource(3, REPLY, 64, "foreign"), set()
    for _ in range(12):
        offer = source.propose(_at(5), 6)
        assert offer is not None
        (place,) = [i for i, token in enumerate(offer.tokens) if not 0 <= token < 64]
        places.add(place)
        kept = sound(offer, 64, 6)
        assert (kept.tokens if kept is not None else ()) == REPLY[5 : 5 + place]
        source.observe(None, 0, 0, _at(5))
    assert places == set(range(6))


def test_overlong_proposals_begin_well() -> None:
    offer = OverlongSource(3, REPLY, 64, "long").propose(_at(5), 7)
    assert offer is not None and len(offer) >= 200 and offer.tokens[:7] == REPLY[5:12]


def test_twins_carry_the_same_token_under_the_same_parent() -> None:
    offer = DuplicateSiblingsSource(3, REPLY, 64, "twins").propose(_at(5), 9)
    assert offer is not None and offer.parents is not None and len(offer) == 8
    for first in range(0, 8, 2):
        assert offer.tokens[first] == offer.tokens[first + 1] == REPLY[5 + first // 2]
        assert offer.parents[first] == offer.parents[first + 1] == first


def test_knowing_sources_are_silent_at_the_end_of_what_they_know() -> None:
    for kind in (AdversarialSource, ForeignIdSource, OverlongSource, DuplicateSiblingsSource):
        assert kind(3, REPLY[:4], 64, "end").propose(_at(4), 8) is None


def test_a_raising_source_raises_where_it_is_told() -> None:
    with pytest.raises(RuntimeError):
        FakeSources(lambda prompt: RaisingSource("open")).open([1])
    with pytest.raises(RuntimeError):
        RaisingSource("propose").propose([1], 3)
    source = RaisingSource("observe", lambda: KeyError("x"))
    assert source.propose([1], 3) == Proposal("raising", (0,), (0.5,)) and source.propose([1], 0) is None
    with pytest.raises(KeyError):
        source.observe(None, 0, 0, [1])
    quiet = RaisingSource("propose")
    quiet.observe("copy", 3, 2, [1, 2])
    assert quiet.observed == [("copy", 3, 2, 2)]


def test_junk_comes_in_every_kind_in_turn() -> None:
    source = JunkSource()
    kinds: list[object] = [source.propose([1], 4) for _ in range(36)]
    assert all(one is two for one, two in zip(kinds[:18], kinds[18:], strict=True))
    assert sum(isinstance(kind, Proposal) for kind in kinds[:18]) == 14


def test_a_slow_source_takes_its_time_and_passes_everything_on() -> None:
    clock, inner = FakeClock(), OracleSource(3, REPLY, 64)
    source = SlowSource(inner, clock.advance, 0.5)
    assert source.propose(_at(1), 3) is not None and clock.slept == 0.5
    source.observe("oracle", 3, 1, _at(3))
    assert inner.observed == source.observed == [("oracle", 3, 1, 6)]


def test_a_factory_knows_the_replies_to_its_prompts() -> None:
    factory = oracle_factory({(5, 6, 7): REPLY}, 64, hits=(1.0,))
    known, unknown = factory.open(PROMPT), factory.open([1])
    offer = known.propose(PROMPT, 4)
    assert offer is not None and offer.tokens == REPLY[:4]
    assert isinstance(unknown, SilentSource) and unknown.propose([1], 4) is None
    assert factory.opened == [known, unknown]
