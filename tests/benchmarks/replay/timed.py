"""A draft source with a watch beside it, which also keeps the first fault: a replay must not pass over one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tensorfold.domain.drafting.sources import CHAINS, DraftSource, DraftSourceFactory, Proposal, Widths


class TimedFactory:
    """Opens `factory`'s sources; adds up the seconds they take and the rounds in which they are asked."""

    def __init__(self, factory: DraftSourceFactory) -> None:
        self._factory = factory
        self.seconds = 0.0
        self.rounds = 0
        self.fault: Exception | None = None
        self.name = ""

    def open(self, prompt: Sequence[int], widths: Widths = CHAINS) -> TimedSource:
        """A source of `factory`."""
        began = time.perf_counter()
        source = self._factory.open(prompt, widths)
        self.seconds += time.perf_counter() - began
        self.name = source.name
        return TimedSource(source, self)


class TimedSource:
    """A DraftSource that times another one."""

    def __init__(self, source: DraftSource, watch: TimedFactory) -> None:
        self._source = source
        self._watch = watch
        self.name = source.name

    def propose(self, tokens: Sequence[int], limit: int) -> Proposal | None:
        """What the source proposes."""
        watch = self._watch
        watch.rounds += 1
        began = time.perf_counter()
        try:
            return self._source.propose(tokens, limit)
        except Exception as fault:
            watch.fault = watch.fault or fault
            raise
        finally:
            watch.seconds += time.perf_counter() - began

    def observe(self, source: str | None, drafted: int, kept: int, tokens: Sequence[int]) -> None:
        """Tell the source."""
        watch = self._watch
        began = time.perf_counter()
        try:
            self._source.observe(source, drafted, kept, tokens)
        except Exception as fault:
            watch.fault = watch.fault or fault
            raise
        finally:
            watch.seconds += time.perf_counter() - began
