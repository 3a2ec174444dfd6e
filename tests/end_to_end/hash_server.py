"""The whole product over a hash model: HTTP, scheduler, engine and rounds, with nothing left out but the weights.

What every reply must be is known beforehand: `Asked` holds a request's body and its serial reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tensorfold.application.chat import ChatService
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import Generation, StreamFactory
from tensorfold.application.health import HealthService
from tensorfold.application.markers import discover
from tensorfold.application.measures import MeasureService
from tensorfold.application.metering import Meter
from tensorfold.application.ports.services import GrammarCompiler
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.ports.tokenizer import ChatTemplate
from tensorfold.application.prompt_cache import PromptCache
from tensorfold.application.replies import ReplyStats
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings, HttpSettings, SamplingDefaults
from tensorfold.domain.drafting.copies import CopySourceFactory
from tensorfold.domain.families.plans import Dialect
from tensorfold.domain.prompts.chunks import ChunkRule
from tensorfold.domain.sampling import Sampling
from tensorfold.entrypoints.http.access_log import AccessLog
from tensorfold.entrypoints.http.limits import HttpLimits
from tensorfold.entrypoints.http.server import HttpServer
from tests.application.house import MachineClock
from tests.fakes.hash_law import HashLaw
from tests.fakes.hash_model import HashModel
from tests.fakes.serial import SerialCase, SerialReply, serial_references
from tests.fakes.tokenizer import FakeTemplate, FakeTokenizer

LAW = HashLaw(vocabulary=512, salt=61, habit_share=0.9)
TOKENIZER = FakeTokenizer(512)
CONTEXT = 4096
ANYWHERE = HttpSettings(port=0)
_CHUNK, _LEAST = 64, 16
PATIENCE_S = 60.0
"""How long a test waits for a fact before it calls it missing: far above what a loaded machine needs."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One request over HTTP and the reply that it must get."""

    path: str
    body: dict[str, Any]
    reply: SerialReply

    @property
    def streamed(self) -> bool:
        """Whether the reply comes as events."""
        return bool(self.body.get("stream"))

    @property
    def text(self) -> str:
        """The reply's text."""
        ids = self.reply.tokens
        return b"".join(TOKENIZER.token_bytes.of(token) for token in ids).decode("utf-8", "replace")

    @property
    def prompt(self) -> tuple[int, ...]:
        """The ids that the engine gets."""
        if "prompt" in self.body:
            return tuple(self.body["prompt"])
        return chat_ids(self.body["messages"][0]["content"])


def chat_ids(content: str) -> tuple[int, ...]:
    """The prompt that one user message becomes."""
    text = FakeTemplate().render([{"role": "user", "content": content}]).text
    return tuple(TOKENIZER.encode(text))


def asked(cases: Sequence[dict[str, Any]]) -> list[Asked]:
    """Requests with their references. A case holds `content` (a chat) or `prompt` (ids), and fields of the body."""
    serial = []
    for case in cases:
        prompt = tuple(case["prompt"]) if "prompt" in case else chat_ids(case["content"])
        heat = case.get("temperature", 0)
        sampling = Sampling(case["seed"], float(heat)) if heat else Sampling()
        ends = frozenset() if case.get("ignore_eos") else frozenset({TOKENIZER.end_id})
        serial.append(SerialCase(prompt, case["max_tokens"], sampling, ends))
    replies = serial_references(LAW, serial, TOKENIZER.shown_bytes)
    return [_asked(case, reply) for case, reply in zip(cases, replies, strict=True)]


def _asked(case: dict[str, Any], reply: SerialReply) -> Asked:
    body = {"temperature": 0, "return_token_ids": True} | case
    content = body.pop("content", None)
    if content is None:
        return Asked("/v1/completions", body, reply)
    return Asked("/v1/chat/completions", body | {"messages": [{"role": "user", "content": content}]}, reply)


@dataclass
class Place:
    """A running server and what it told."""

    http: HttpServer
    scheduler: Scheduler
    ended: list[tuple[Generation, ReplyStats | None, str]] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    faults: list[tuple[str, BaseException]] = field(default_factory=list)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.http.port

    @property
    def counters(self) -> Counters:
        """What the engine counted."""
        return self.scheduler.counters

    def empty(self) -> bool:
        """Whether nothing runs, fills or waits, no reply is in flight, and the idle engine has checked its books."""
        return not any(self.scheduler.loads()) and self.http.gate.inside == 0 and self.scheduler._checked

    def until_empty(self) -> None:
        """Wait for `empty`."""
        until(self.empty, lambda: f"loads {self.scheduler.loads()}, {self.http.gate.inside} replies inside")


@contextmanager
def hash_server(
    model: TargetModel,
    settings: EngineSettings,
    *,
    log: AccessLog = lambda record: None,
    listening: HttpSettings = ANYWHERE,
    limits: HttpLimits | None = None,
    context: int = CONTEXT,
    max_tokens: int = 256,
    template: ChatTemplate | None = None,
    tokenizer: FakeTokenizer = TOKENIZER,
    ends: frozenset[int] | None = None,
    grammars: GrammarCompiler | None = None,
    dialect: Dialect | None = None,
    keeps: int | None = None,
) -> Iterator[Place]:
    """Serve `model` on a free loopback port; stopped in the end, whatever happened.

    `max_tokens` is what a reply may have when its request does not say; `limits` are those of the load by default, and
    `ends` the tokenizer's last id. With `keeps` prompts are cut in small chunks at messages, and so many bytes of their
    states are kept.
    """
    clock, counters = MachineClock(), Counters()

    def load() -> tuple[Engine, StreamFactory]:
        engine = Engine(model, settings, clock, sources=(CopySourceFactory(),), counters=counters, log=lines.append)
        if keeps is not None:
            rule = ChunkRule(_CHUNK, discover(template or FakeTemplate(), tokenizer), _LEAST)
            engine.prompts = PromptCache(model, rule, keeps, log=lines.append)
        stop_ids = frozenset({tokenizer.end_id}) if ends is None else ends
        return engine, StreamFactory(
            context=context, max_tokens=max_tokens, stop_ids=stop_ids, token_bytes=tokenizer.token_bytes
        )

    lines: list[str] = []
    ended: list[tuple[Generation, ReplyStats | None, str]] = []
    faults: list[tuple[str, BaseException]] = []
    meter = Meter()

    def done(generation: Generation, stats: ReplyStats | None, reason: str) -> None:
        meter.done(generation, stats, reason)
        ended.append((generation, stats, reason))

    scheduler = Scheduler(
        load, settings, clock, counters=counters, log=lines.append, on_done=done, on_landed=meter.landed
    )
    http = HttpServer(
        listening,
        limits or HttpLimits.for_load(settings.parallel, settings.queue),
        version="test",
        log=log,
        log_fault=lambda where, broken: faults.append((where, broken)),
    )
    http.start()
    scheduler.start()
    scheduler.wait_ready()
    names, defaults = ("hash",), SamplingDefaults()
    chat = ChatService(
        scheduler, tokenizer, template or FakeTemplate(), defaults, clock, model_names=names, grammars=grammars,
        dialect=dialect,
    )  # fmt: skip
    health = HealthService(scheduler, {})
    measures = MeasureService(scheduler, meter, health.status, drafts=True)
    http.ready(chat, health, "hash", measures)
    try:
        yield Place(http, scheduler, ended, lines, faults)
    finally:
        http.stop(0.0)
        assert scheduler.stop(PATIENCE_S), "the engine thread did not end"


def hash_model(**changes: Any) -> HashModel:
    """A hash model wide enough for every test here."""
    return HashModel(LAW, **({"max_streams": 32, "batch_rows": 128, "max_lanes": 64, "prefill_slice": 16} | changes))


def until(fact: Callable[[], bool], what: Callable[[], str] | str) -> None:
    """Wait for a fact."""
    deadline = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < deadline, f"never came: {what if isinstance(what, str) else what()}"
        time.sleep(0.005)
