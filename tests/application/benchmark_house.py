"""What the benchmark's tests stand on: a scheduler whose time is the model's alone, records in memory, and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tensorfold.application.benchmark_results import Result, Row
from tensorfold.application.benchmarking import Benchmark, Listener, Matrix, Outcome, Question
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.proving_record import RecordUnderProof
from tensorfold.application.recall import RecallService
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.recall.identity import RecordIdentity
from tensorfold.domain.recall.layout import CHUNK_BYTES, CHUNK_IDS, LEAST_CHUNKS
from tensorfold.domain.sampling import Sampling
from tests.application.house import WAIT_S, MachineClock, law
from tests.fakes.clock import FakeClock
from tests.fakes.hash_model import HashModel
from tests.fakes.paced_model import PacedModel
from tests.fakes.stores import FakeRecallStore, FakeRecordFolder

VOCABULARY = 512
LAW = law(73, vocabulary=VOCABULARY, habit=0.9)
STREAMS = (1, 2, 4)
QUESTIONS = tuple(
    Question(f"question-{n}", tuple(range(n, n + 20)), Sampling(n, 0.8) if n == 2 else Sampling()) for n in range(3)
)
MATRIX = Matrix(QUESTIONS, 24, 1, STREAMS)


class Heard(Listener):
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []

    def began(self, mode: str, streams: int, replies: int) -> None:
        self.lines.append(("began", mode, streams, replies))

    def replied(self, done: int) -> None:
        self.lines.append(("replied", done))

    def measured(self, row: Row) -> None:
        self.lines.append(("measured", row.mode, row.streams))


def model(**changes: Any) -> HashModel:
    """A sound hash model."""
    return HashModel(LAW, **({"prefill_slice": 64} | changes))


def records(stores: list[FakeRecordFolder] | None = None) -> RecordUnderProof:
    """Records over folders in memory, which `stores` collects."""
    kept = stores if stores is not None else []

    def make(name: str, read_only: bool) -> RecallService:
        kept.append(FakeRecordFolder())
        service = RecallService(
            FakeRecallStore(kept[-1], chunk_ids=CHUNK_IDS, read_only=read_only),
            RecordIdentity("ab" * 32, VOCABULARY, "fake"),
            directory=name,
            budget_bytes=LEAST_CHUNKS * CHUNK_BYTES,
            clock=MachineClock(),
            log=lambda line: None,
        )
        service.open()
        return service

    return RecordUnderProof(make)


@contextmanager
def scheduled(
    target: TargetModel, record: RecordUnderProof, clock: FakeClock, context: int = 4096, **settings: Any
) -> Iterator[Scheduler]:
    """A running scheduler over `target` that reads `clock`."""
    engine_settings = EngineSettings(**({"parallel": 4} | settings))
    counters = Counters()

    def load() -> tuple[Engine, StreamFactory]:
        sources = (CopySourceFactory(), record)
        engine = Engine(target, engine_settings, clock, sources=sources, counters=counters)
        table = TokenBytes(tuple(bytes((i % 256,)) for i in range(VOCABULARY)))
        return engine, StreamFactory(context=context, max_tokens=64, stop_ids=frozenset(), token_bytes=table)

    scheduler = Scheduler(load, engine_settings, clock, counters=counters, recorder=record)
    scheduler.start()
    scheduler.wait_ready()
    try:
        yield scheduler
    finally:
        assert scheduler.stop(WAIT_S), "the engine thread did not end"
        record.rest()


def measured(
    target: TargetModel | None = None,
    matrix: Matrix = MATRIX,
    *,
    launch_s: float = 0.01,
    listener: Listener | None = None,
    stores: list[FakeRecordFolder] | None = None,
    context: int = 4096,
) -> Outcome:
    """A benchmark of a model whose launches take `launch_s`, and nothing else any time."""
    clock, record = FakeClock(), records(stores)
    paced = PacedModel(target if target is not None else model(), clock.advance, launch_s)
    with scheduled(paced, record, clock, context) as scheduler:
        return Benchmark(scheduler, record, clock, matrix, listener or Listener()).run()


def result_of(rows: Sequence[Row], **changes: Any) -> Result:
    """A result of these rows."""
    values: dict[str, Any] = {
        "version": "1.2.3",
        "date": "2030-01-02 03:04 UTC",
        "model": "tiny",
        "weights": "ab" * 32,
        "backend": "mlx",
        "through": "scheduler",
        "machine": "Linux x86_64, Some Processor, 2 cores, 16 GiB",
        "prompts": "sha256:" + "cd" * 32,
        "prompt_names": ("one", "two"),
        "prompt_source": "the public files",
        "reply": 24,
        "runs": 1,
        "compared": 33,
        "differences": 0,
        "rows": tuple(rows),
        "notes": ("load average at the start: 0.1",),
    }
    return Result(**(values | changes))


def row(mode: str = "serial", streams: int = 1, rate: float = 10.0, **changes: Any) -> Row:
    """A cell."""
    values: dict[str, Any] = {
        "mode": mode,
        "record": "none",
        "streams": streams,
        "replies": 3,
        "tokens": 72,
        "seconds": 7.2,
        "first_p50_s": 0.5,
        "first_p99_s": 0.75,
        "rate": rate,
        "stream_rate": rate,
        "rounds": 72,
        "launches": 72,
        "round_tokens": 1.0,
        "sources": {},
    }
    return Row(**(values | changes))
