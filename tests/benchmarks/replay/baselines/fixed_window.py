"""The policy the documents of Recall describe: a window of 7 ids, taken after a match of 16, by each class's mean.

A copy is offered when the mean of what its class landed lately is more than what the stream's own drafts landed lately.
Otherwise a probe is made now and then, rarer while probes miss. A stream whose copy landed nothing leaves the record
alone for four rounds.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tensorfold.domain.drafting.sources import CHAINS, Proposal, Widths, took_part
from tests.benchmarks.replay.baselines.runs import RunIndex

NAME = "record"
WINDOW = 7
KEY = 16
CLASSES = (16, 32, 64)
FIRST_MEANS = (0.75 * WINDOW, 0.85 * WINDOW, 0.95 * WINDOW)
TRIALS = 8.0
DECAY = 0.97
OWN_RATE = 0.15
OWN_FIRST = 1.5
REST = 4
FIRST_WAIT, LONGEST_WAIT = 8, 512


class FixedWindowFactory:
    """Opens sources that share one record, the means of its classes and the spacing of probes."""

    def __init__(self) -> None:
        self._index = RunIndex(KEY)
        self._kept = [mean * TRIALS for mean in FIRST_MEANS]
        self._tried = [TRIALS for _ in CLASSES]
        self.passed = 0
        self.wait = FIRST_WAIT

    def remember(self, run: Sequence[int]) -> None:
        """Record a run."""
        self._index.remember(run)

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> FixedWindow:
        """A source for one stream."""
        return FixedWindow(self, self._index)

    def mean(self, kind: int) -> float:
        """Ids that a copy of a class is expected to land."""
        return self._kept[kind] / self._tried[kind]

    def learn(self, kind: int, landed: int) -> None:
        """A copy of a class landed so many."""
        self._kept[kind] = DECAY * self._kept[kind] + landed
        self._tried[kind] = DECAY * self._tried[kind] + 1.0

    def probed(self, good: bool) -> None:
        """A probe came out."""
        self.wait = FIRST_WAIT if good else min(2 * self.wait, LONGEST_WAIT)


class FixedWindow:
    """A DraftSource of the fixed window over one stream."""

    name = NAME

    def __init__(self, shared: FixedWindowFactory, index: RunIndex) -> None:
        self._shared = shared
        self._index = index
        self._own = OWN_FIRST
        self._rest = 0
        self._offer: tuple[int, tuple[int, ...], int, bool] | None = None

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """Seven ids of the longest match, when its class is expected to land more than own drafts, or as a probe."""
        self._offer = None
        match = None if self._rest else self._index.best(tokens)
        if match is None or limit < 1:
            return None
        length, run, at = match
        kind = bisect_right(CLASSES, length) - 1
        drafts = run[at : at + min(WINDOW, limit)]
        expected = self._shared.mean(kind) * len(drafts) / WINDOW
        probe = expected <= self._own
        if probe:
            self._shared.passed += 1
            if self._shared.passed < self._shared.wait:
                return None
            self._shared.passed = 0
        self._offer = (kind, drafts, len(tokens), probe)
        # A probe is verified whatever is expected of it, so it must not lose against the own drafts.
        chance = 1.0 if probe else min(expected / len(drafts), 1.0)
        return Proposal(NAME, drafts, (chance,) * len(drafts))

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Learn the class's mean, the own drafts' mean, and whether to rest."""
        offer, self._offer = self._offer, None
        self._rest = max(self._rest - 1, 0)
        if not took_part(NAME, source):
            self._own += OWN_RATE * (kept - self._own)
            return
        if offer is None or drafted < 1:
            return
        kind, drafts, at, probe = offer
        landed = _shared(drafts, tokens[at:])
        self._shared.learn(kind, landed)
        if probe:
            self._shared.probed(landed >= max(1.0, self._own))
        if landed == 0:
            self._rest = REST


def _shared(drafts: Sequence[int], decided: Sequence[int]) -> int:
    return next(
        (i for i, (a, b) in enumerate(zip(drafts, decided, strict=False)) if a != b), min(len(drafts), len(decided))
    )
