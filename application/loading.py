"""From a checkpoint's facts to an engine: family, bound tensors, window, end tokens, then the backend's weights.

Everything that can be refused is refused before a weight is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.ports.backend import Backend, DrafterCheckpoint, ModelCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.ports.machine import Clock
from tensorfold.application.ports.target_model import TargetModel
from tensorfold.application.ports.tokenizer import Tokenizer
from tensorfold.application.settings import EngineSettings
from tensorfold.domain.drafting.sources import DraftSourceFactory
from tensorfold.domain.families.binding import Bound, resolve
from tensorfold.domain.families.catalogue import family_of, plan_for
from tensorfold.domain.families.device_limits import refuse_windows
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.generation_defaults import GenerationDefaults, read_generation
from tensorfold.domain.families.plans import DecoderPlan
from tensorfold.domain.families.storage import parse_quantization
from tensorfold.domain.memory.cuda_holding import Room
from tensorfold.domain.memory.cuda_windows import check_asked_cuda
from tensorfold.domain.memory.windows import MemoryRefusal, check_asked


@dataclass(frozen=True, slots=True)
class Described:
    """A checkpoint whose facts all hold: its plan, tensors, defaults and the window it will be served with."""

    plan: DecoderPlan
    bound: Mapping[str, Bound]
    defaults: GenerationDefaults
    stop_ids: frozenset[int]
    context: int


def check_config(config: Mapping[str, Any], backend: str, context: int | None) -> DecoderPlan:
    """What can be refused from config.json alone: family, backend, storage format, window. Raises RefusedError."""
    try:
        plan = plan_for(config, backend)
        parse_quantization(config)
    except ConfigError as refusal:
        raise RefusedError(refusal.message) from None
    _window(plan, context, backend)
    return plan


def describe(facts: CheckpointFacts, backend: str, context: int | None) -> Described:
    """Check a checkpoint against its family and the asked window. Raises RefusedError with one sentence."""
    try:
        plan = plan_for(facts.config, backend)
        bound = resolve(plan, facts.tensors, parse_quantization(facts.config))
        defaults = read_generation(facts.generation, plan.head.vocabulary)
    except ConfigError as refusal:
        raise RefusedError(refusal.message) from None
    return Described(plan, bound, defaults, plan.stop_ids | defaults.stop_ids, _window(plan, context, backend))


def _window(plan: DecoderPlan, asked: int | None, backend: str) -> int:
    """The window before memory is looked at."""
    try:
        (check_asked_cuda if backend == "cuda" else check_asked)(plan, asked)
    except MemoryRefusal as refusal:
        raise RefusedError(refusal.message) from None
    return asked or plan.context


def check_tokenizer(plan: DecoderPlan, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer that can make ids the model does not have."""
    if tokenizer.vocabulary > plan.embedding.vocabulary:
        raise RefusedError(
            f"tokenizer.json has {tokenizer.vocabulary} ids but the model's vocabulary is {plan.embedding.vocabulary}; "
            "the two files are not of one checkpoint."
        )


def load_engine(
    described: Described,
    facts: CheckpointFacts,
    backend: Backend,
    tokenizer: Tokenizer,
    settings: EngineSettings,
    clock: Clock,
    *,
    name: str,
    max_tokens: int,
    counters: Counters,
    sources: Sequence[DraftSourceFactory],
    on_progress: Callable[[str], None],
    log: Callable[[str], None],
    drafter: DrafterCheckpoint | None = None,
    pools: Room | None = None,
) -> tuple[Engine, StreamFactory]:
    """Load the weights and stand the engine on them; called on the engine's own thread. Raises RefusedError."""
    model = backend.load(
        ModelCheckpoint(described.plan, described.bound, facts, settings.heads, drafter),
        name=name,
        context=described.context,
        max_streams=settings.parallel,
        on_progress=on_progress,
        pools=pools,
    )
    if settings.drafts and (refusal := _refused_windows(described, facts, model)) is not None:
        model.shutdown()
        raise RefusedError(refusal)
    engine = Engine(model, settings, clock, sources=sources, counters=counters, log=log)
    factory = StreamFactory(
        context=min(described.context, model.limits.context),
        max_tokens=max_tokens,
        stop_ids=described.stop_ids,
        token_bytes=tokenizer.token_bytes,
    )
    return engine, factory


def _refused_windows(described: Described, facts: CheckpointFacts, model: TargetModel) -> str | None:
    """Why this device may not draft from weights stored so, where the load check found nothing to draft with."""
    return refuse_windows(
        described.plan,
        family_of(facts.config).title,
        described.bound,
        model.identity.device,
        proven=model.limits.chain_width > 1,
    )
