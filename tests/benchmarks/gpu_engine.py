"""Requests over a loaded model through the product's scheduler and engine: replies, their times, and their equality.

What every part of the GPU benchmark that runs a model stands on. Knows no device: the model comes in by its port, so a
test runs the same code over a hash model.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tensorfold.adapters.filesystem.record_posix import PosixRecordFiles
from tensorfold.adapters.filesystem.record_store import RecordStore
from tensorfold.adapters.system.clock import SystemClock
from tensorfold.adapters.system.disk import SystemDisk
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import Generation, StreamFactory
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.recall import RecallService
from tensorfold.application.recording import Recorder
from tensorfold.application.replies import Ended, Event, GenerationRequest, Landed, ReplyStats
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.drafting.sources import DraftSourceFactory
from tensorfold.domain.prompts.family_chunk import card_chunks
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES, LEAST_CHUNKS
from tensorfold.domain.recall.policy import OfferSettings
from tensorfold.domain.sampling import Sampling, derive_seed, keyed_hash
from tests.fakes.wrapped_model import WrappedModel

RECORD_OFF = "off"
RECORD_ON = "on, a temporary folder"
COPIES = (CopySourceFactory(),)
_WAIT_S = 600.0


class Lent(WrappedModel):
    """A model that several schedulers run in turn: what each leaves open is closed, the model stays."""

    def shutdown(self) -> None:
        """Close every lane; the model's owner shuts it down."""
        for lane in self.inner.lanes():
            self.inner.close(lane)


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply. `landings` are (seconds of the monotonic clock, tokens that landed then)."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    stats: ReplyStats
    landings: tuple[tuple[float, int], ...]

    @property
    def rate(self) -> float:
        """Tokens a second behind the first."""
        return self.stats.tokens_per_second

    @property
    def a_round(self) -> float:
        """Tokens a round."""
        return len(self.ids) / max(1, self.stats.rounds)

    def drafts(self, source: str) -> tuple[int, int]:
        """Drafts of one source: verified, kept."""
        parts = [part for part in self.stats.sources if source in part.source]
        return sum(part.drafted for part in parts), sum(part.kept for part in parts)


_TOLD: Counter[str] = Counter()
_OFTEN = 3


def tell(line: str) -> None:
    """What the engine logs, a fault's words among it, which a reply does not carry; the same line a few times only."""
    _TOLD[line] += 1
    if _TOLD[line] <= _OFTEN:
        print(f"   engine: {line}", file=sys.stderr, flush=True)


@contextmanager
def running(
    model: TargetModel,
    *,
    parallel: int = 1,
    drafts: bool = True,
    chunk: int = 0,
    sources: Sequence[DraftSourceFactory] = COPIES,
    recorder: Recorder | None = None,
) -> Iterator[Scheduler]:
    """The product's scheduler over a model that stays loaded; prompts in chunks of `chunk`, 0: as a server has it."""
    rows = chunk or card_chunks(parallel)[0]
    settings = EngineSettings(parallel=parallel, queue=64, drafts=drafts, prefill_chunk=rows)
    clock, counters = SystemClock(), Counters()
    lent = Lent(model)

    def load() -> tuple[Engine, StreamFactory]:
        engine = Engine(lent, settings, clock, sources=tuple(sources), counters=counters, log=tell)
        table = TokenBytes(tuple(b"%d " % token for token in range(lent.limits.vocabulary)))
        context = lent.limits.context
        return engine, StreamFactory(context=context, max_tokens=context, stop_ids=frozenset(), token_bytes=table)

    scheduler = Scheduler(load, settings, clock, counters=counters, recorder=recorder, log=tell)
    scheduler.start()
    scheduler.wait_ready()
    try:
        yield scheduler
    finally:
        scheduler.stop(60.0)


def request(
    prompt: tuple[int, ...], tokens: int, *, sampled: bool = False, draft: bool = False, top_p: float = 0.95
) -> GenerationRequest:
    """A request for exactly so many tokens, greedy or at temperature 1."""
    sampling = Sampling(derive_seed(prompt), 1.0, 0, top_p) if sampled else Sampling()
    return GenerationRequest(prompt, sampling, tokens, ignore_eos=True, draft=draft)


def ask(scheduler: Scheduler, asked: GenerationRequest) -> Reply:
    """The whole reply to one request."""
    return ask_all(scheduler, [asked])[0]


def ask_all(scheduler: Scheduler, asked: Sequence[GenerationRequest]) -> list[Reply]:
    """The whole replies to requests sent at once. Raises RuntimeError where one ends with an error."""
    heard: list[list[float]] = [[] for _ in asked]
    generations = []
    for request_, times in zip(asked, heard, strict=True):
        generation = scheduler.submit(request_)
        # Called on the engine's thread: the time at which tokens landed, not that at which this thread read them.
        generation.listen(lambda times=times: times.append(time.perf_counter()))  # type: ignore[misc]
        generations.append(generation)
    return [_read(generation, times) for generation, times in zip(generations, heard, strict=True)]


def _read(generation: Generation, times: list[float]) -> Reply:
    events: list[Event] = []
    while not events or isinstance(events[-1], Landed):
        event = generation.next(_WAIT_S)
        if event is None:
            raise RuntimeError(f"nothing came for {_WAIT_S:.0f} seconds")
        events.append(event)
    end = events[-1]
    if not isinstance(end, Ended):
        raise RuntimeError(f"a reply did not end: {end}")
    # One more time than events were heard, or as many where the first came before anybody listened.
    spare = max(0, len(events) - len(times))
    when = [times[0]] * spare + times[len(times) + spare - len(events) :]
    landed = [(at, event.ids) for at, event in zip(when, events, strict=True) if isinstance(event, Landed)]
    ids = tuple(token for _, part in landed for token in part)
    return Reply(generation.request.prompt, ids, end.stats, tuple((at, len(part)) for at, part in landed))


def together(replies: Sequence[Reply]) -> float:
    """Tokens a second of all streams, over the time in which every one of them decodes."""
    return rate_between([reply.landings for reply in replies])


def rate_between(landings: Sequence[Sequence[tuple[float, float]]]) -> float:
    """Tokens a second between the last stream's first landing and the first stream's last one; 0 where none is."""
    began = max(stream[0][0] for stream in landings)
    ended = min(stream[-1][0] for stream in landings)
    landed = sum(count for stream in landings for at, count in stream if began < at <= ended)
    return landed / (ended - began) if ended > began else 0.0


def prompt_ids(vocabulary: int, count: int, number: int) -> tuple[int, ...]:
    """A prompt of so many ids, another for each number; no run of it repeats but by chance."""
    drawn = keyed_hash(1000 + number, 0, np.arange(count, dtype=np.int64))
    return tuple((3 + drawn % np.uint64(vocabulary - 3)).astype(np.int64).tolist())


def unequal(expected: Sequence[Reply], found: Sequence[Reply]) -> int:
    """Tokens in which replies differ from those that they must equal, missing ones among them."""
    pairs = zip(expected, found, strict=True)
    return sum(
        abs(len(one.ids) - len(other.ids)) + sum(a != b for a, b in zip(one.ids, other.ids, strict=False))
        for one, other in pairs
    )


@contextmanager
def record(folder: Path, vocabulary: int) -> Iterator[RecallService]:
    """A record of its own in `folder`, started and loaded, which offers as a server's does."""
    service = opened_record(folder, vocabulary, eager=False)
    service.start()
    service.wait_loaded(60.0)
    try:
        yield service
    finally:
        service.close()


def opened_record(folder: Path, vocabulary: int, *, read_only: bool = False, eager: bool = True) -> RecallService:
    """A record in `folder`, not started yet; an `eager` one offers whatever it finds, as proofs want it."""
    folder.mkdir(parents=True, exist_ok=True)
    identity, clock, disk = RecordIdentity("5e" * 32, vocabulary, "benchmark"), SystemClock(), SystemDisk()
    budget = LEAST_CHUNKS * CHUNK_BYTES
    store = RecordStore(
        PosixRecordFiles(folder),
        identity,
        budget_bytes=budget,
        read_only=read_only,
        free_bytes=lambda: disk.free_bytes(folder),
        clock=clock,
        log=_silent,
        folder=str(folder),
    )
    offers = OfferSettings(eager=True) if eager else None
    service = RecallService(
        store, identity, directory=str(folder), budget_bytes=budget, clock=clock, log=_silent, offers=offers
    )
    service.open()
    return service


def _silent(line: str) -> None: ...
