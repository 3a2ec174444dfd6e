"""Requests of a proof: started through the real scheduler, read to their end, compared with the serial reply.

Ids are compared, and the digests of the rows that drew them. Knows no mode and no oracle.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tensorfold.application.generation import Generation
from tensorfold.application.proof import Case, Difference, Row
from tensorfold.application.replies import Cancelled, Ended, Failed, GenerationRequest, Landed, ReplyStats
from tensorfold.application.scheduler import Scheduler
from tensorfold.domain.drafting.sources import DraftSource

REPLY = 48
_WAIT_S = 600.0


@dataclass(slots=True)
class Read:
    """A request being read to its end."""

    generation: Generation
    ids: list[int] = field(default_factory=list)
    prints: list[int] = field(default_factory=list)
    stats: ReplyStats | None = None
    failure: str = ""

    def finish(self) -> Read:
        """Read until the reply ends."""
        while (event := self.generation.next(_WAIT_S)) is not None:
            if isinstance(event, Landed):
                self._take(event)
            elif isinstance(event, Ended):
                self.stats = event.stats
                return self
            elif isinstance(event, Failed):
                self.failure = event.message
                return self
            elif isinstance(event, Cancelled):
                return self
        self.failure = f"nothing came for {_WAIT_S:.0f} seconds"
        return self

    def until(self, tokens: int) -> bool:
        """Read until `tokens` tokens have landed; False when the reply ended before."""
        while len(self.ids) < tokens and (event := self.generation.next(_WAIT_S)) is not None:
            if not isinstance(event, Landed):
                self.stats = event.stats if isinstance(event, Ended) else None
                return False
            self._take(event)
        return True

    def _take(self, event: Landed) -> None:
        self.ids += event.ids
        self.prints += event.prints


class ProofRunner:
    """Starts and compares a proof's requests."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.limits = scheduler.engine.model.limits

    def serial(self, case: Case) -> Case:
        """The case with its serial reply: alone, one row a round. Raises RuntimeError when the request fails."""
        read = self.start(case, draft=False).finish()
        if read.failure:
            raise RuntimeError(read.failure)
        return replace(case, reply=tuple(read.ids), prints=tuple(read.prints))

    def start(
        self, case: Case, source: DraftSource | None = None, *, draft: bool = True, stop: int | None = None
    ) -> Read:
        """Submit the case, `source` beside the usual draft sources; with `stop`, the id that ends it."""
        limit = min(REPLY, self.limits.context - len(case.prompt))
        stops = frozenset() if stop is None else frozenset({stop})
        request = GenerationRequest(case.prompt, case.sampling, limit, draft=draft, stop_ids=stops, audit=True)
        request = replace(request, constraint=case.constraint)
        return Read(self.scheduler.submit(request, source))

    def compare(self, row: Row, index: int, case: Case, read: Read, stop: int | None = None) -> None:
        """Count what a finished reply shows, and where it first leaves the serial one."""
        expected = case.reply if stop is None else case.reply[: case.reply.index(stop) + 1]
        if read.failure:
            row.note = f"a request failed: {read.failure}"
        if read.stats is not None:
            row.count(read.stats)
        row.compared += len(expected)
        for at in range(max(len(expected), len(read.ids))):
            want = expected[at] if at < len(expected) else -1
            got = read.ids[at] if at < len(read.ids) else -1
            bits = want == got and at < len(read.prints) and read.prints[at] != case.prints[at]
            if want != got or bits:
                row.differences += 1
                row.first = row.first or Difference(index, len(case.prompt) + at, want, got, bits)
                if want != got:
                    return
