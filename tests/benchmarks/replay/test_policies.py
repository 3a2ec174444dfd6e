"""Policies to compare with are as their descriptions say, and Recall is what a server runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.domain.drafting.sources import Proposal
from tests.benchmarks.replay.baselines.automaton import ROOT, SuffixAutomaton
from tests.benchmarks.replay.baselines.fixed_window import FIRST_MEANS, FixedWindowFactory
from tests.benchmarks.replay.baselines.ngrams import LEAST_WALK, NgramTableFactory, PromptLookupFactory
from tests.benchmarks.replay.baselines.suffix import SuffixFactory
from tests.benchmarks.replay.compare import FIXED, NGRAM, OFF, RECALL, compare
from tests.benchmarks.replay.costs import CHAINS, TREES
from tests.benchmarks.replay.ours import MemoryRecord, recall
from tests.benchmarks.replay.policy import Off
from tests.benchmarks.replay.samples import VOCABULARY, again, ids, request
from tests.benchmarks.replay.simulation import replay
from tests.benchmarks.replay.speech import word_speech
from tests.benchmarks.replay.traces import regenerate
from tests.benchmarks.replay.workload import Workload


@settings(derandomize=True, deadline=None, max_examples=100)
@given(runs=st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=4))
@pytest.mark.slow
def test_an_automaton_counts_every_run_as_often_as_it_occurs(runs: list[list[int]]) -> None:
    automaton = SuffixAutomaton()
    counts: Counter[tuple[int, ...]] = Counter()
    for run in runs:
        automaton.add(run)
        counts.update(tuple(run[a:b]) for a in range(len(run)) for b in range(a + 1, len(run) + 1))
    for run_of_ids, count in counts.items():
        state = ROOT
        for token in run_of_ids:
            state = automaton.follow[state][token]
        assert automaton.count[state] == count


@settings(derandomize=True, deadline=None, max_examples=60)
@given(text=st.lists(st.integers(0, 2), max_size=15), stream=st.lists(st.integers(0, 3), max_size=15))
@pytest.mark.slow
def test_an_automaton_tells_the_longest_end_that_occurred(text: list[int], stream: list[int]) -> None:
    automaton = SuffixAutomaton()
    automaton.add(text)
    at = (ROOT, 0)
    for end, token in enumerate(stream, start=1):
        at = automaton.step(*at, token)
        ends = [n for n in range(1, end + 1) if _occurs(stream[end - n : end], text)]
        assert at[1] == max(ends, default=0)


def test_suffix_decoding_takes_the_likelier_way_with_its_frequency_as_chance() -> None:
    factory = SuffixFactory()
    for last in (7, 7, 7, 8):
        factory.remember([1, 2, 3, last])
    offer = factory.open(()).propose([9, 1, 2, 3], 10)
    assert offer == Proposal("suffix", (7,), (0.75,))


def test_suffix_decoding_drafts_no_more_than_what_matched_and_no_more_than_32() -> None:
    text = ids(1, 200)
    factory = SuffixFactory()
    factory.remember(text)
    for matched, drafted in ((1, 1), (5, 5), (31, 31), (40, 32)):
        offer = factory.open(()).propose([0, *text[20 : 20 + matched]], 100)
        assert offer is not None
        assert offer.tokens == text[20 + matched : 20 + matched + drafted]


def test_suffix_decoding_stops_below_its_floor() -> None:
    factory = SuffixFactory()
    for last in range(100, 111):
        factory.remember([1, 2, 3, last])
    assert factory.open(()).propose([1, 2, 3], 10) is None


def test_the_7_id_window_needs_sixteen_ids_and_drafts_seven() -> None:
    text = ids(1, 100)
    factory = FixedWindowFactory()
    factory.remember(text)
    assert factory.open(()).propose(text[:15], 31) is None
    offer = factory.open(()).propose(text[:16], 31)
    assert offer == Proposal("record", text[16:23], (FIRST_MEANS[0] / 7,) * 7)


def test_a_stream_of_the_7_id_window_rests_four_rounds_after_a_copy_that_landed_nothing() -> None:
    text = ids(1, 100)
    factory = FixedWindowFactory()
    factory.remember(text)
    source = factory.open(())
    assert source.propose(text[:20], 31)
    source.observe("record", 7, 0, [*text[:20], 0])
    for _ in range(4):
        assert source.propose(text[:40], 31) is None
        source.observe("head", 3, 1, text[:40])
    assert source.propose(text[:40], 31)


def test_a_7_id_window_expected_to_land_less_than_own_drafts_is_a_rare_probe() -> None:
    text = ids(1, 100)
    factory = FixedWindowFactory()
    factory.remember(text)
    source = factory.open(())
    source._own = 7.0
    offers = [source.propose(text[:20], 31) for _ in range(16)]
    assert [at for at, offer in enumerate(offers, start=1) if offer] == [8, 16]
    source.observe("record", 7, 1, [*text[:21], 0])
    offers = [source.propose(text[:40], 31) for _ in range(16)]
    assert [at for at, offer in enumerate(offers, start=1) if offer] == [16]


def test_an_ngram_table_makes_no_short_drafts() -> None:
    text = ids(1, 200)
    factory = NgramTableFactory()
    factory.remember(text)
    far = 200 - LEAST_WALK
    assert len(factory.open(()).propose(text[:far], 100) or ()) == LEAST_WALK
    assert factory.open(()).propose(text[: far + 1], 100) is None
    assert len(factory.open(()).propose(text[:30], 100) or ()) == 64
    assert factory.open(()).propose(text[:23], 100) is None


def test_prompt_lookup_takes_the_first_place_of_the_longest_key() -> None:
    source = PromptLookupFactory().open(())
    offer = source.propose([1, 2, 3, 4, 9, 2, 3, 5, 1, 2, 3], 3)
    assert offer is not None
    assert offer.tokens == (4, 9, 2)
    assert PromptLookupFactory().open(()).propose([1, 2, 3], 3) is None


def test_recall_is_replayed_with_its_own_rule_of_what_is_added() -> None:
    record = MemoryRecord(VOCABULARY)
    run = ids(4, 500)
    record.remember(run)
    record.remember(run)
    assert record.index.ids == 500


@pytest.mark.parametrize("machine", [CHAINS, TREES], ids=["chains", "trees"])
def test_a_repeated_request_lands_its_windows_under_recall(machine: object) -> None:
    assert machine in (CHAINS, TREES)
    tally = replay(again(1, 5, 9), recall(VOCABULARY), CHAINS if machine is CHAINS else TREES, VOCABULARY)
    assert tally.landed > 0.95
    assert tally.per_round > 15


def test_no_policy_changes_what_a_stream_without_a_match_costs() -> None:
    work = Workload("new", "", (request(1),), (request(20),))
    result = compare(work, [CHAINS], VOCABULARY)
    for name in (RECALL, FIXED, NGRAM):
        assert result.tallies[name][CHAINS.name].cost == result.tallies[OFF][CHAINS.name].cost


def test_a_conversation_is_regenerated_in_a_few_rounds() -> None:
    speech = word_speech()
    work = regenerate(speech)
    few = Workload(work.name, work.about, work.before, work.streams[:3])
    off, ours = (replay(few, policy, CHAINS, speech.vocabulary) for policy in (Off(), recall(speech.vocabulary)))
    assert ours.rounds * 3 < off.rounds


def _occurs(run: Sequence[int], text: Sequence[int]) -> bool:
    return any(list(text[at : at + len(run)]) == list(run) for at in range(len(text) - len(run) + 1))
