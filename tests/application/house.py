"""A scheduler over the hash model, and readers of its replies: what the application's tests stand on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tensorfold.application.admission import AdmissionControl
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import Generation, StreamFactory
from tensorfold.application.metering import Meter
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.recording import Recorder
from tensorfold.application.replies import Ended, Event, Failed, GenerationRequest, Landed
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.sources import DraftSourceFactory
from tests.fakes.clock import MachineClock as MachineClock
from tests.fakes.hash_law import HashLaw
from tests.fakes.serial import BYTE_IDS, SerialCase

WAIT_S = 30.0


@dataclass(slots=True)
class Read:
    """A reply read to its end."""

    ids: list[int] = field(default_factory=list)
    prints: list[int] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @property
    def end(self) -> Event:
        return self.events[-1]

    @property
    def failed(self) -> bool:
        return isinstance(self.end, Failed)

    @property
    def ended(self) -> bool:
        return isinstance(self.end, Ended)


def read(generation: Generation, wait: float = WAIT_S) -> Read:
    """Everything a generation delivers, up to and with its end."""
    got = Read()
    while True:
        event = generation.next(wait)
        assert event is not None, "nothing came in time"
        got.events.append(event)
        if not isinstance(event, Landed):
            return got
        got.ids += event.ids
        got.prints += event.prints


def request(case: SerialCase, **changes: Any) -> GenerationRequest:
    """A serial case as a request; its stop ids travel with it."""
    values: dict[str, Any] = {"stops": case.stops, "stop_ids": case.stop_ids} | changes
    return GenerationRequest(case.prompt, case.sampling, case.max_tokens, **values)


@contextmanager
def serving(
    model: TargetModel,
    *,
    settings: EngineSettings | None = None,
    sources: Sequence[DraftSourceFactory] = (),
    stop_ids: frozenset[int] = frozenset(),
    context: int = 4096,
    max_tokens: int = 64,
    log: Callable[[str], None] = lambda line: None,
    token_bytes: TokenBytes | None = None,
    recorder: Recorder | None = None,
    meter: Meter | None = None,
    admission: AdmissionControl | None = None,
) -> Iterator[Scheduler]:
    """A running scheduler over `model`; stopped, and checked for leftovers, at the end."""
    settings = settings or EngineSettings()
    clock, counters = MachineClock(), Counters()

    def load() -> tuple[Engine, StreamFactory]:
        engine = Engine(model, settings, clock, sources=sources, counters=counters, log=log)
        table = token_bytes or TokenBytes(BYTE_IDS)
        return engine, StreamFactory(context=context, max_tokens=max_tokens, stop_ids=stop_ids, token_bytes=table)

    meter = meter or Meter()
    scheduler = Scheduler(
        load,
        settings,
        clock,
        counters=counters,
        log=log,
        on_done=meter.done,
        on_landed=meter.landed,
        recorder=recorder,
        admission=admission,
    )
    scheduler.start()
    scheduler.wait_ready()
    try:
        yield scheduler
    finally:
        assert scheduler.stop(WAIT_S), "the engine thread did not end"


def idle(scheduler: Scheduler) -> None:
    """Wait until nothing runs or waits."""
    end = time.monotonic() + WAIT_S
    while any(scheduler.loads()):
        assert time.monotonic() < end, f"still busy: {scheduler.loads()}"
        time.sleep(0.002)


def law(salt: int = 1, vocabulary: int = 64, habit: float = 0.0) -> HashLaw:
    """A small law with many ties."""
    return HashLaw(vocabulary=vocabulary, salt=salt, habit_share=habit)
