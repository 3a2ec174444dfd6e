"""Drafted, shared and interrupted replies through the real scheduler equal the serial ones, token for token."""

from __future__ import annotations

import itertools
import random
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tensorfold.application.planting import PlantedDrafts, Tally
from tensorfold.application.replies import Ended, Event
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.drafting.sources import DraftSourceFactory, Proposal
from tensorfold.domain.sampling import Sampling
from tests.application.house import Read, idle, law, read, request, serving
from tests.fakes.broken_sources import (
    AdversarialSource,
    DuplicateSiblingsSource,
    ForeignIdSource,
    JunkSource,
    OverlongSource,
    RaisingSource,
)
from tests.fakes.draft_sources import FakeSources, KnowingSource, OracleSource
from tests.fakes.hash_head import HashHead
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import BYTE_IDS, SerialCase, SerialReply, serial_references

PROPERTY = settings(derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow])
samplings = st.one_of(
    st.just(Sampling()),
    st.builds(
        Sampling,
        seed=st.integers(0, 2**64 - 1),
        temperature=st.sampled_from([0.3, 0.8, 1.0, 1.7]),
        top_k=st.sampled_from([0, 3, 20]),
        top_p=st.sampled_from([1.0, 0.9, 0.5]),
        min_p=st.sampled_from([0.0, 0.1]),
    ),
)


@st.composite
def case_lists(draw: st.DrawFn, most: int = 6) -> tuple[HashLaw, list[SerialCase]]:
    """A law and requests over it: prompts, limits, end tokens and stop strings of every kind."""
    the_law = law(draw(st.integers(0, 2**32)), draw(st.sampled_from([64, 96])), draw(st.sampled_from([0.0, 0.5])))
    ids = st.integers(0, the_law.vocabulary - 1)
    cases = []
    for _ in range(draw(st.integers(1, most))):
        prompt = tuple(draw(st.lists(ids, min_size=1, max_size=30)))
        stop_ids = frozenset(draw(st.lists(ids, max_size=3)))
        stops = tuple(draw(st.lists(st.lists(ids, min_size=1, max_size=3).map(bytes), max_size=2)))
        cases.append(SerialCase(prompt, draw(st.integers(1, 60)), draw(samplings), stop_ids, stops))
    return the_law, cases


def equal(got_ids: list[int], got_end: Event, expected: SerialReply) -> None:
    assert tuple(got_ids) == expected.tokens
    assert isinstance(got_end, Ended)
    assert (got_end.reason, got_end.stop) == (expected.finish, expected.stop)


def replies_of(
    model: HashModel, cases: list[SerialCase], factories: tuple[DraftSourceFactory, ...], engine: EngineSettings
) -> list[Read]:
    with serving(model, settings=engine, sources=factories) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in cases]]
        idle(scheduler)
        assert not scheduler.check_integrity()
        assert model.lanes() == () and model.unsettled() == () and not model.misuses
    return got


@PROPERTY
@given(
    case_lists(),
    st.integers(2, 16),
    st.sampled_from([0, 2, 7, 16]),
    st.booleans(),
    st.integers(1, 4),
    st.sampled_from([(1.0,), (0.9, 0.6, 0.3), (0.0, 1.0)]),
)
@pytest.mark.slow
def test_a_drafted_reply_equals_the_serial_reply(
    the_cases: tuple[HashLaw, list[SerialCase]],
    chain: int,
    tree: int,
    force: bool,
    parallel: int,
    hits: tuple[float, ...],
) -> None:
    the_law, cases = the_cases
    expected = serial_references(the_law, cases)
    by_prompt = {case.prompt: reply.tokens for case, reply in zip(cases, expected, strict=True)}
    oracles = FakeSources(
        lambda prompt: OracleSource(len(prompt), by_prompt[prompt], the_law.vocabulary, hits=hits, tree=tree > 1)
    )
    model = HashModel(the_law, chain_width=chain, tree_width=max(tree, 1), audit=True)
    engine = EngineSettings(parallel=parallel, force_windows=force)
    got = replies_of(model, cases, (oracles, CopySourceFactory()), engine)
    for one, reply in zip(got, expected, strict=True):
        equal(one.ids, one.end, reply)


@PROPERTY
@given(case_lists(), st.integers(2, 9), st.integers(1, 4))
@pytest.mark.slow
def test_after_every_round_a_lane_holds_the_prompt_and_all_of_the_reply_but_its_last_token(
    the_cases: tuple[HashLaw, list[SerialCase]], width: int, parallel: int
) -> None:
    the_law, cases = the_cases
    expected = serial_references(the_law, cases)
    by_prompt = {case.prompt: reply.tokens for case, reply in zip(cases, expected, strict=True)}
    oracles = FakeSources(lambda prompt: OracleSource(len(prompt), by_prompt[prompt], the_law.vocabulary, hits=(0.8,)))
    model = HashModel(the_law, chain_width=width, audit=True)
    replies_of(model, cases, (oracles,), EngineSettings(parallel=parallel, force_windows=True))
    histories = {case.prompt + reply.tokens for case, reply in zip(cases, expected, strict=True)}
    for trail in model.trails().values():
        assert any(history[: len(trail.absorbed)] == tuple(trail.absorbed) for history in histories)
        assert any(history[:-1] == tuple(trail.absorbed) for history in histories)


@PROPERTY
@given(case_lists(most=4), st.integers(2, 16))
@pytest.mark.slow
def test_the_models_own_head_changes_no_token(the_cases: tuple[HashLaw, list[SerialCase]], chain: int) -> None:
    the_law, cases = the_cases
    from tensorfold.application.ports.target_model import ModelCosts

    costs = ModelCosts(((1, 1.0), (16, 1.5)), 0.01, head_ms=(0.1, 0.2, 0.3))
    model = HashModel(the_law, chain_width=chain, head=HashHead(), costs=costs)
    got = replies_of(model, cases, (CopySourceFactory(),), EngineSettings(parallel=4))
    for one, reply in zip(got, serial_references(the_law, cases), strict=True):
        equal(one.ids, one.end, reply)


@pytest.mark.parametrize(
    "kind", [AdversarialSource, ForeignIdSource, OverlongSource, DuplicateSiblingsSource, RaisingSource, JunkSource]
)
def test_no_broken_draft_source_changes_a_token_or_ends_a_stream(kind: type) -> None:
    the_law = law(5)
    cases = [SerialCase((i, i + 1, i + 2), 40, Sampling(i, 1.0) if i % 2 else Sampling()) for i in range(4)]
    expected = serial_references(the_law, cases)
    by_prompt = {case.prompt: reply.tokens for case, reply in zip(cases, expected, strict=True)}

    def make(prompt: tuple[int, ...]) -> Any:
        if kind in (RaisingSource, JunkSource):
            return kind()
        return kind(len(prompt), by_prompt[prompt], the_law.vocabulary, kind.__name__)

    sources = FakeSources(make)
    got = replies_of(HashModel(the_law), cases, (sources,), EngineSettings(parallel=4, force_windows=True))
    for one, reply in zip(got, expected, strict=True):
        equal(one.ids, one.end, reply)


@pytest.mark.parametrize("offset", range(15))
@pytest.mark.parametrize("kind", ["stop_id", "max_tokens", "stop_string"])
@pytest.mark.slow
def test_an_end_anywhere_inside_a_fully_right_window_ends_the_reply_there(kind: str, offset: int) -> None:
    the_law = law(9, vocabulary=96)
    whole = serial_references(the_law, [SerialCase((3, 1, 4), 64)])[0].tokens
    token = whole[offset]
    case = {
        "stop_id": SerialCase((3, 1, 4), 64, stop_ids=frozenset({token})),
        "max_tokens": SerialCase((3, 1, 4), offset + 1),
        "stop_string": SerialCase((3, 1, 4), 64, stops=(BYTE_IDS[token],)),
    }[kind]
    expected = serial_references(the_law, [case])[0]
    model = HashModel(the_law, audit=True)
    with serving(model, settings=EngineSettings(force_windows=True)) as scheduler:
        source = OracleSource(3, whole, 96, hits=(1.0,))
        got = read(scheduler.submit(request(case), source))
    equal(got.ids, got.end, expected)
    (trail,) = model.trails().values()
    assert tuple(trail.absorbed) == case.prompt + expected.tokens[:-1]


@pytest.mark.slow
def test_a_concurrent_reply_equals_its_solo_reply_whenever_it_arrives_and_whoever_leaves() -> None:
    the_law = law(11)
    rng = random.Random(4)
    cases = [
        SerialCase(
            tuple(rng.randrange(64) for _ in range(rng.randrange(1, 60))), rng.randrange(5, 80), Sampling(i, 0.9)
        )
        for i in range(40)
    ]
    expected = serial_references(the_law, cases)
    with serving(HashModel(the_law), settings=EngineSettings(parallel=6), sources=(CopySourceFactory(),)) as scheduler:
        started = []
        for index, case in enumerate(cases):
            generation = scheduler.submit(request(case))
            if index % 3 == 1:
                for _ in range(rng.randrange(3)):
                    generation.next(0.02)
                generation.cancel()
            else:
                started.append((generation, expected[index]))
        for generation, reply in started:
            got = read(generation)
            equal(got.ids, got.end, reply)


def test_rounds_are_accounted_for_and_every_stream_moves_within_its_turn() -> None:
    the_law = law(12)
    model = HashModel(the_law, max_streams=3, batch_rows=24)
    settings_ = EngineSettings(parallel=8, force_windows=True)
    cases = [SerialCase((i, 7), 30) for i in range(8)]
    expected = serial_references(the_law, cases)
    by_prompt = {case.prompt: reply.tokens for case, reply in zip(cases, expected, strict=True)}
    oracles = FakeSources(lambda prompt: OracleSource(len(prompt), by_prompt[prompt], 64, hits=(0.7,)))
    with serving(model, settings=settings_, sources=(oracles,)) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in cases]]
        counters = scheduler.counters
        landed = sum(len(one.ids) for one in got)
        rounds = sum(one.end.stats.rounds for one in got if isinstance(one.end, Ended))
        assert landed == counters.kept_total + rounds
        assert model.rows <= 24 * model.launches
    for one, reply in zip(got, expected, strict=True):
        equal(one.ids, one.end, reply)


@pytest.mark.slow
def test_replies_do_not_depend_on_how_the_threads_interleave() -> None:
    the_law = law(13)
    cases = [SerialCase((i, 2 * i % 64), 50, Sampling(i, 1.1)) for i in range(12)]
    expected = serial_references(the_law, cases)
    present = sys.getswitchinterval()
    try:
        for interval in (1e-6, 1e-3, 0.1):
            sys.setswitchinterval(interval)
            with serving(
                HashModel(the_law), settings=EngineSettings(parallel=5), sources=(CopySourceFactory(),)
            ) as scheduler:
                got: dict[int, Read] = {}

                def ask(index: int, scheduler: Scheduler = scheduler, got: dict[int, Read] = got) -> None:
                    got[index] = read(scheduler.submit(request(cases[index])))

                threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(cases))]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            for index, reply in enumerate(expected):
                equal(got[index].ids, got[index].end, reply)
    finally:
        sys.setswitchinterval(present)


def test_a_request_without_drafts_runs_one_row_a_round() -> None:
    the_law = law(14)
    case = SerialCase((1, 2, 3), 30)
    expected = serial_references(the_law, [case])[0]
    model = HashModel(the_law)
    with serving(model, settings=EngineSettings(force_windows=True), sources=(CopySourceFactory(),)) as scheduler:
        source = OracleSource(3, expected.tokens, 64, hits=(1.0,))
        got = read(scheduler.submit(request(case, draft=False)))
        assert model.rows == model.launches == len(expected.tokens)
        read(scheduler.submit(request(case), source))
    equal(got.ids, got.end, expected)


def test_a_server_without_drafts_makes_every_request_serial() -> None:
    model = HashModel(law(15))
    with serving(model, settings=EngineSettings(drafts=False), sources=(CopySourceFactory(),)) as scheduler:
        read(scheduler.submit(request(SerialCase((1, 2, 3), 30))))
        assert model.rows == model.launches


def test_no_drafts_are_made_past_the_context_that_the_load_check_covers() -> None:
    the_law = law(16)
    case = SerialCase(tuple(range(20)), 40)
    expected = serial_references(the_law, [case])[0]
    model = HashModel(the_law, draft_context=30)
    source = OracleSource(20, expected.tokens, 64, hits=(1.0,))
    with serving(model, settings=EngineSettings(force_windows=True)) as scheduler:
        got = read(scheduler.submit(request(case), source))
    equal(got.ids, got.end, expected)
    assert all(tokens <= 30 for _, drafted, _, tokens in source.observed if drafted)


def test_a_model_whose_rows_do_not_share_takes_streams_in_turn() -> None:
    the_law = law(17)
    model = HashModel(the_law, shares_rounds=False)
    cases = [SerialCase((i,), 20) for i in range(5)]
    with serving(model, settings=EngineSettings(parallel=5)) as scheduler:
        got = [read(g) for g in [scheduler.submit(request(case)) for case in cases]]
    assert model.rows == model.launches
    for one, reply in zip(got, serial_references(the_law, cases), strict=True):
        equal(one.ids, one.end, reply)


def test_a_tree_that_is_a_chain_is_no_wider_than_chains_may_be() -> None:
    the_law = law(18)
    case = SerialCase((1, 2, 3), 40)
    expected = serial_references(the_law, [case])[0]
    model = HashModel(the_law, chain_width=3, tree_width=16)
    oracle = PlantedDrafts(3, expected.tokens, itertools.repeat(1000), "tree", 64, Tally())
    with serving(model, settings=EngineSettings(force_windows=True)) as scheduler:
        got = read(scheduler.submit(request(case), oracle))
        assert scheduler.counters.kept_total > 0 and scheduler.counters.retries == 0
    equal(got.ids, got.end, expected)
    assert not model.misuses


class ShapedSource(KnowingSource):
    """The right ids, at most `most` of them with one chance each, as a chain or as a tree of one branch."""

    def __init__(self, reply: Sequence[int], most: int, chance: float, tree: bool) -> None:
        super().__init__(3, reply, 64, "tree" if tree else "chain")
        self._most, self._chance, self._tree = most, chance, tree

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """As many as are known."""
        right = self.ahead(tokens, min(limit, self._most))
        parents = tuple(range(len(right))) if self._tree else None
        return Proposal(self.name, right, (self._chance,) * len(right), parents) if right else None


def test_offers_that_agree_are_merged_to_a_chain_no_wider_than_chains_may_be() -> None:
    the_law = law(18)
    case = SerialCase((1, 2, 3), 40)
    expected = serial_references(the_law, [case])[0]
    model = HashModel(the_law, chain_width=3, tree_width=16)
    sure, long = ShapedSource(expected.tokens, 2, 1.0, False), ShapedSource(expected.tokens, 15, 0.9, True)
    with serving(
        model, sources=[FakeSources(lambda _: long)], settings=EngineSettings(force_windows=True)
    ) as scheduler:
        got = read(scheduler.submit(request(case), sure))
        assert scheduler.counters.kept_total > 0 and scheduler.counters.retries == 0
    equal(got.ids, got.end, expected)
    assert not model.misuses
