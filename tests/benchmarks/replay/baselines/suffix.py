"""Suffix decoding as its authors describe it: one suffix structure over earlier replies, one over this request.

For each end of the stream that occurred before, the likeliest ids that followed it are walked along: a draft's
probability is the share of the occurrences that went on with it, times that of the draft before. A walk is at most
alpha times as long as the end it began at, at most 32 ids, and stops under a probability of 0.1. Of all ends and both
structures, the walk with the highest sum of probabilities is taken; these are its chances.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tensorfold.domain.drafting.sources import CHAINS, Proposal, Widths
from tests.benchmarks.replay.baselines.automaton import ROOT, SuffixAutomaton

NAME = "suffix"
ALPHA = 1.0
MOST_DRAFTS = 32
FLOOR = 0.1

Walk = tuple[float, list[int], list[float]]


class SuffixFactory:
    """Opens sources that share the structure over earlier replies."""

    def __init__(self) -> None:
        self._earlier = SuffixAutomaton()

    def remember(self, run: Sequence[int]) -> None:
        """Take in an earlier reply."""
        self._earlier.add(run)

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> SuffixSource:
        """A source for one stream."""
        return SuffixSource(self._earlier)


class SuffixSource:
    """A DraftSource of suffix decoding over one stream."""

    name = NAME

    def __init__(self, earlier: SuffixAutomaton) -> None:
        self._own = SuffixAutomaton()
        self._earlier = earlier
        self._read = 0
        # The longest end of the stream in each structure, as (state, length).
        self._in_own = (ROOT, 0)
        self._in_earlier = (ROOT, 0)

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """The best walk of both structures."""
        for token in tokens[self._read :]:
            # An end is looked for before it is taken in, else it would always be found: at the end itself.
            self._in_own = self._own.step(*self._in_own, token)
            self._own.extend(token)
            self._in_earlier = self._earlier.step(*self._in_earlier, token)
        self._read = len(tokens)
        best: Walk = (0.0, [], [])
        for automaton, at in ((self._own, self._in_own), (self._earlier, self._in_earlier)):
            for walk in _walks(automaton, *at, limit):
                if walk[0] > best[0]:
                    best = walk
        return Proposal(NAME, tuple(best[1]), tuple(best[2])) if best[1] else None

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Nothing is learned from what landed."""


def _walks(automaton: SuffixAutomaton, state: int, matched: int, limit: int) -> Iterator[Walk]:
    """The walk from each end: all ends of one state are followed alike, so the longest stands for them."""
    while state != ROOT:
        yield _walk(automaton, state, min(int(ALPHA * matched), MOST_DRAFTS, limit))
        state = automaton.link[state]
        matched = automaton.length[state]


def _walk(automaton: SuffixAutomaton, state: int, most: int) -> Walk:
    total, chance = 0.0, 1.0
    tokens: list[int] = []
    chances: list[float] = []
    follow, count = automaton.follow, automaton.count
    while len(tokens) < most and follow[state]:
        token, behind = max(follow[state].items(), key=lambda item: count[item[1]])
        chance *= min(count[behind] / count[state], 1.0)
        if chance < FLOOR:
            break
        tokens.append(token)
        chances.append(chance)
        total += chance
        state = behind
    return total, tokens, chances
