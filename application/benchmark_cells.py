"""One cell of a benchmark: the same requests over a number of streams, through the real scheduler.

Each stream sends its next request when its last reply has ended, so that as many replies run as there are streams
until the requests run out. Whoever calls reads every reply; the engine never waits for a reader.
"""

from __future__ import annotations

import queue
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tensorfold.application.benchmark_results import Row
from tensorfold.application.errors import OverloadedError, RequestError
from tensorfold.application.generation import Generation
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.ports.machine import Clock
from tensorfold.application.replies import Ended, Failed, GenerationRequest, Landed, ReplyStats
from tensorfold.application.scheduler import Scheduler

_WAIT_S = 600.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole reply to request number `at`."""

    at: int
    ids: tuple[int, ...]
    stats: ReplyStats


@dataclass(frozen=True, slots=True)
class Measured:
    """Every reply of a cell in the order they ended, and what it took: seconds, engine rounds and launches."""

    answers: tuple[Answer, ...]
    seconds: float
    rounds: int
    launches: int


@dataclass(slots=True)
class _Open:
    """A reply that is being read."""

    at: int
    generation: Generation
    ids: list[int] = field(default_factory=list)


class CellRunner:
    """Runs cells one after another on one scheduler, whose queue nobody else uses."""

    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock

    def run(
        self,
        requests: Sequence[GenerationRequest],
        streams: int,
        on_reply: Callable[[int], None] = lambda done: None,
    ) -> Measured:
        """All requests, `streams` at a time; `on_reply` hears how many replies have ended.

        Raises RefusedError when a request cannot be answered.
        """
        counters = self._scheduler.counters
        rounds, launches = counters.rounds, counters.launches
        answers: list[Answer] = []
        running: dict[int, _Open] = {}
        heard: queue.SimpleQueue[int] = queue.SimpleQueue()
        began = self._clock.monotonic()
        try:
            for at in range(min(streams, len(requests))):
                running[at] = self._start(at, requests[at], heard)
            following = len(running)
            while running:
                answer = self._hear(running, heard)
                if answer is None:
                    continue
                answers.append(answer)
                on_reply(len(answers))
                if following < len(requests):
                    running[following] = self._start(following, requests[following], heard)
                    following += 1
        finally:
            for one in running.values():
                one.generation.cancel()
        seconds = self._clock.monotonic() - began
        return Measured(tuple(answers), seconds, counters.rounds - rounds, counters.launches - launches)

    def _start(self, at: int, request: GenerationRequest, heard: queue.SimpleQueue[int]) -> _Open:
        try:
            generation = self._scheduler.submit(request)
        except (RequestError, OverloadedError) as refusal:
            raise RefusedError(f"A request of the benchmark was refused: {refusal.message}") from None
        generation.listen(partial(heard.put, at))
        return _Open(at, generation)

    def _hear(self, running: dict[int, _Open], heard: queue.SimpleQueue[int]) -> Answer | None:
        """Take what has come of one reply; the reply when its end was among it."""
        try:
            at = heard.get(timeout=_WAIT_S)
        except queue.Empty:
            raise RefusedError(f"The engine said nothing for {_WAIT_S:.0f} seconds; the benchmark ends.") from None
        one = running.get(at)
        # Events that came before anybody listened are heard of once, so each hearing takes all there is.
        while one is not None and (event := one.generation.next(0.0)) is not None:
            if isinstance(event, Landed):
                one.ids += event.ids
            elif isinstance(event, Ended):
                del running[at]
                return Answer(at, tuple(one.ids), event.stats)
            else:
                del running[at]
                why = event.message if isinstance(event, Failed) else "it was cancelled"
                raise RefusedError(f"A request of the benchmark failed: {why}")
        return None


def row_of(mode: str, record: str, streams: int, measured: Measured) -> Row:
    """The figures of a cell."""
    stats = [answer.stats for answer in measured.answers]
    sources: dict[str, tuple[int, int]] = {}
    for one in stats:
        for source in one.sources:
            drafted, kept = sources.get(source.source, (0, 0))
            sources[source.source] = drafted + source.drafted, kept + source.kept
    firsts = [one.ttft_s for one in stats]
    # A reply that landed in one round took no time that its tokens could be held against.
    rates = [one.tokens_per_second for one in stats if one.completion_tokens > one.first_tokens]
    tokens, rounds = sum(one.completion_tokens for one in stats), sum(one.rounds for one in stats)
    return Row(
        mode=mode,
        record=record,
        streams=streams,
        replies=len(stats),
        tokens=tokens,
        seconds=measured.seconds,
        first_p50_s=percentile(firsts, 50),
        first_p99_s=percentile(firsts, 99),
        rate=tokens / measured.seconds if measured.seconds > 0 else 0.0,
        stream_rate=statistics.median(rates) if rates else 0.0,
        rounds=measured.rounds,
        launches=measured.launches,
        round_tokens=tokens / rounds if rounds else 0.0,
        sources=sources,
    )


def percentile(values: Sequence[float], share: int) -> float:
    """The smallest value that `share` percent of the values do not exceed: one of them, never a mixture."""
    ordered = sorted(values)
    return ordered[max(0, -(-share * len(ordered) // 100) - 1)]
