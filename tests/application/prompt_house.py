"""A scheduler that keeps states of prompts, over a model that notices where prompts were cut; conversations for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tensorfold.application.admission import MemoryAdmission
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.kept_states import NO_SIZES, ForkSizes
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.prompt_cache import PromptCache
from tensorfold.application.recording import Recorder
from tensorfold.application.replies import Ended, GenerationRequest
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings
from tensorfold.application.snapshots import SnapshotShelf
from tensorfold.domain.conversation.token_bytes import TokenBytes
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.prompts.chunks import ChunkRule
from tensorfold.domain.prompts.markers import Markers
from tensorfold.domain.sampling import Sampling
from tests.application.house import MachineClock, Read, law, read
from tests.fakes.chunky_model import ChunkyModel
from tests.fakes.serial import BYTE_IDS

OPEN, USER, ASSISTANT = 1, 2, 3
RULE = ChunkRule(48, Markers(frozenset({OPEN}), (OPEN, ASSISTANT)), 12)
"""Chunks of 12 to 48 ids."""
MUCH = 1 << 20
SAMPLED = Sampling(7, 1.0, 0, 0.95)
DEFAULTS: dict[str, Any] = {"prefill_slice": 0, "resume": "chunk"}
"""Of the models made here; a test may have its states kept on the device instead, with `resume` "prompt_end"."""


@dataclass(slots=True)
class Kept:
    """A running server, its model's engine, and what it logged."""

    scheduler: Scheduler
    lines: list[str]

    @property
    def cache(self) -> PromptCache:
        return self.scheduler.engine.prompts

    def ask(self, prompt: Sequence[int], tokens: int = 12, **fields: Any) -> Read:
        """A reply read to its end."""
        return read(self.scheduler.submit(request(prompt, tokens, **fields)))

    @property
    def filled(self) -> int:
        """Ids of prompts that were read."""
        return self.scheduler.counters.filled_tokens


def request(prompt: Sequence[int], tokens: int = 12, **fields: Any) -> GenerationRequest:
    sampling = fields.pop("sampling", SAMPLED)
    return GenerationRequest(tuple(prompt), sampling, tokens, stop_ids=frozenset(), **fields)


def cached(got: Read) -> int:
    """Ids of a prompt that a kept state spared it."""
    assert isinstance(got.end, Ended), got.end
    return got.end.stats.cached_tokens


@contextmanager
def keeping(
    model: TargetModel,
    budget: int = MUCH,
    *,
    rule: ChunkRule = RULE,
    shelf: SnapshotShelf | None = None,
    slots: int = 32,
    settings: EngineSettings | None = None,
    clock: Clock | None = None,
    recorder: Recorder | None = None,
    on_landed: Callable[[float], None] = lambda gap_s: None,
    admission: MemoryAdmission | None = None,
    sizes: ForkSizes = NO_SIZES,
) -> Iterator[Kept]:
    """A server that keeps `budget` bytes, as far as `admission` leaves it them; checked for leftovers at the end."""
    settings, counters, lines = settings or EngineSettings(), Counters(), list[str]()
    used = clock or MachineClock()

    def load() -> tuple[Engine, StreamFactory]:
        engine = Engine(model, settings, used, sources=(CopySourceFactory(),), counters=counters, log=lines.append)
        engine.prompts = PromptCache(model, rule, budget, slots=slots, shelf=shelf, sizes=sizes, log=lines.append)
        if admission is not None:
            admission.retained = engine.prompts
        table = TokenBytes(BYTE_IDS)
        return engine, StreamFactory(context=4096, max_tokens=64, stop_ids=frozenset(), token_bytes=table)

    scheduler = Scheduler(
        load,
        settings,
        used,
        counters=counters,
        log=lines.append,
        recorder=recorder,
        on_landed=on_landed,
        admission=admission,
    )
    scheduler.start()
    scheduler.wait_ready()
    try:
        yield Kept(scheduler, lines)
    finally:
        assert scheduler.stop(30.0), "the engine thread did not end"
        if shelf is not None:
            shelf.close()


def model(salt: int = 1, **options: Any) -> ChunkyModel:
    options = DEFAULTS | options
    return ChunkyModel(law(salt), **options)


def words(random_: random.Random, count: int) -> list[int]:
    return [random_.randrange(4, 64) for _ in range(count)]


def system(random_: random.Random, count: int = 30) -> list[int]:
    """The beginning of a conversation."""
    return [OPEN, 9, *words(random_, count)]


def turn(history: Sequence[int], random_: random.Random, count: int = 9) -> list[int]:
    """A prompt: what was said, a user's message of `count` ids, and the beginning of the answer."""
    return [*history, OPEN, USER, *words(random_, count), OPEN, ASSISTANT]


def fresh(prompts: Sequence[Sequence[int]], salt: int = 1, tokens: int = 12, **options: Any) -> list[Read]:
    """Each reply of a server that keeps nothing, serial."""
    with keeping(model(salt, **options), 0) as server:
        return [server.ask(prompt, tokens, draft=False) for prompt in prompts]
