"""Every policy over every workload on every machine, and what each cell came to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.benchmarks.replay.baselines.fixed_window import FixedWindowFactory
from tests.benchmarks.replay.baselines.ngrams import NgramTableFactory, PromptLookupFactory
from tests.benchmarks.replay.baselines.suffix import SuffixFactory
from tests.benchmarks.replay.costs import Machine
from tests.benchmarks.replay.ours import recall
from tests.benchmarks.replay.policy import Off, Policy, WithSource
from tests.benchmarks.replay.simulation import replay
from tests.benchmarks.replay.tally import Tally
from tests.benchmarks.replay.workload import Workload

OFF, FIXED, SUFFIX, SUFFIX_ALONE = "off", "7-id window", "suffix", "suffix alone"
NGRAM, LOOKUP, RECALL = "ngram-mod", "prompt lookup", "recall"


def _fixed() -> Policy:
    factory = FixedWindowFactory()
    return WithSource(FIXED, factory, factory.remember)


def _suffix() -> Policy:
    factory = SuffixFactory()
    return WithSource(SUFFIX, factory, factory.remember, replies=True)


def _suffix_alone() -> Policy:
    factory = SuffixFactory()
    return WithSource(SUFFIX_ALONE, factory, factory.remember, replies=True, own_context=False)


def _ngrams() -> Policy:
    factory = NgramTableFactory()
    return WithSource(NGRAM, factory, factory.remember)


def _lookup() -> Policy:
    factory = PromptLookupFactory()
    return WithSource(LOOKUP, factory, factory.remember, own_context=False)


@dataclass(frozen=True, slots=True)
class Result:
    """A workload under every policy: tallies by policy, then by machine."""

    workload: Workload
    tallies: dict[str, dict[str, Tally]]


def compare(workload: Workload, machines: Sequence[Machine], vocabulary: int) -> Result:
    """Replay `workload` under every policy on every machine, each time with a fresh record."""
    makers: dict[str, Callable[[], Policy]] = {
        OFF: Off,
        FIXED: _fixed,
        SUFFIX: _suffix,
        SUFFIX_ALONE: _suffix_alone,
        NGRAM: _ngrams,
        LOOKUP: _lookup,
        RECALL: lambda: recall(vocabulary),
    }
    tallies = {
        name: {machine.name: replay(workload, make(), machine, vocabulary) for machine in machines}
        for name, make in makers.items()
    }
    return Result(workload, tallies)
