"""What `serve` and `verify` do alike: find the model, check its files, load it on the engine's thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from tensorfold.application.admission import MemoryAdmission
from tensorfold.application.catalogue import served_name
from tensorfold.application.counters import Counters
from tensorfold.application.engine import Engine
from tensorfold.application.generation import StreamFactory
from tensorfold.application.loading import Described, check_config, check_tokenizer, describe, load_engine
from tensorfold.application.memory_planning import PlannedMemory, plan_memory, settled, widest_pass
from tensorfold.application.metering import Meter
from tensorfold.application.pooled_admission import PooledAdmission
from tensorfold.application.ports.backend import DrafterCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.ports.tokenizer import Tokenizer
from tensorfold.application.prompt_keeping import PromptKeeping, kept_ends
from tensorfold.application.recording import Recorder
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.settings import EngineSettings, SamplingDefaults
from tensorfold.domain.drafting.sources import DraftSourceFactory
from tensorfold.domain.families.catalogue import Backend, family_of
from tensorfold.domain.families.missing_heads import missing_head
from tensorfold.entrypoints.cli.choosing import choose_backend
from tensorfold.entrypoints.cli.head_lines import head_lines, head_words
from tensorfold.entrypoints.cli.progress import Progress
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import RunSettings

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Checked:
    """A model whose files are sound and whose backend is there; no weight has been read. `why` says who chose that."""

    name: str
    folder: Path
    backend: str
    facts: CheckpointFacts
    described: Described
    tokenizer: Tokenizer
    drafter: DrafterCheckpoint | None = None
    memory: PlannedMemory | None = None
    why: str = ""

    @property
    def has_head(self) -> bool:
        """Whether the checkpoint holds a draft head of its own."""
        return any(path.startswith("mtp.") for path in self.described.bound)


def check(settings: RunSettings, container: Container, say: Say) -> Checked:
    """Find and check a model. Raises RefusedError."""
    choice = settings.choice or choose_backend(settings.model.backend, container)
    backend = choice.name
    if (missing := container.backend(backend).missing()) is not None:
        raise RefusedError(missing)
    name = served_name(settings.model.model, settings.model.name)
    with Progress(settings.model.model, say) as progress:
        folder = container.models().locate(
            settings.model.model,
            progress.say,
            check=partial(check_config, backend=backend, context=settings.model.context),
            on_transfer=progress.moved,
        )
    facts = container.reader().facts(folder)
    described = describe(facts, backend, settings.model.context)
    tokenizer = container.tokenizer(folder)
    check_tokenizer(described.plan, tokenizer)
    checked = Checked(name, folder, backend, facts, described, tokenizer, why=choice.why)
    if settings.engine.drafts:
        checked = _with_drafter(checked, settings, container, say)
    return _with_memory(checked, settings, container)


def _with_drafter(checked: Checked, settings: RunSettings, container: Container, say: Say) -> Checked:
    """The model with the drafter that is meant. Raises RefusedError, also where a backend does not start without."""
    asked, family = settings.engine.heads.drafter, family_of(checked.facts.config)
    with Progress(asked, say) as progress:
        drafter = container.drafters().find(asked, family, checked.described.plan, progress.say, progress.moved)
    backend: Backend = "cuda" if checked.backend == "cuda" else "mlx"
    lacking = missing_head(family, backend, has_head=checked.has_head, has_drafter=drafter is not None)
    if lacking is not None and lacking.refuses:
        raise RefusedError(lacking.text)
    return replace(checked, drafter=drafter)


def _with_memory(checked: Checked, settings: RunSettings, container: Container) -> Checked:
    """The model with what it takes of the budget and the window that follows. Raises RefusedError."""
    memory = plan_memory(
        checked.described,
        checked.facts,
        container.backend(checked.backend),
        settings.memory,
        settings.engine.heads,
        checked.drafter,
        settings.model.context,
        streams=settings.engine.parallel,
        kept=kept_ends(settings.prompts),
    )
    return replace(checked, described=memory.described, memory=memory)


def schedule(
    checked: Checked,
    settings: RunSettings,
    container: Container,
    say: Say,
    *,
    on_progress: Say | None = None,
    force_windows: bool = False,
    more_sources: Sequence[DraftSourceFactory] = (),
    recorder: Recorder | None = None,
    meter: Meter | None = None,
    keeping: PromptKeeping | None = None,
) -> Scheduler:
    """A scheduler that loads the model when it is started; `force_windows` is for proofs.

    `more_sources` are asked after a stream's own context; `recorder` is told what streams read and wrote, `meter`
    what replies took; `keeping` plans prompts and keeps their states, without it none is kept. Without `on_progress`,
    which may raise to end the load, the load's progress is said too.
    """
    counters = Counters()
    clock = container.clock()
    engine_settings = replace(settings.engine, force_windows=force_windows)
    sources = (*container.sources(), *more_sources)

    backend = container.backend(checked.backend)
    assert checked.memory is not None
    planned = checked.memory
    if planned.pools is not None:
        # A proof or a measurement reads prompts in the chunks that were planned for this card.
        engine_settings = replace(engine_settings, prefill_chunk=planned.plan.footprint.rows)
    admit = MemoryAdmission if planned.pools is None else PooledAdmission
    admission = admit(planned.plan, backend.memory())

    def load() -> tuple[Engine, StreamFactory]:
        admission.begin()
        engine, factory = load_engine(
            checked.described,
            checked.facts,
            backend,
            checked.tokenizer,
            engine_settings,
            clock,
            name=checked.name,
            max_tokens=settings.generation.max_tokens,
            counters=counters,
            sources=sources,
            on_progress=on_progress or say,
            log=say,
            drafter=checked.drafter,
            pools=planned.pools,
        )
        if keeping is not None:
            keeping.plan(engine, planned)
        memory = settled(planned, widest_pass(engine.model.limits, engine.prompts.rule.step))
        admission.plan = memory.plan
        factory.context = min(factory.context, memory.window.tokens)
        if keeping is not None:
            admission.retained = keeping.keep(engine, memory)
        return engine, factory

    meter = meter or Meter()
    return Scheduler(
        load,
        engine_settings,
        clock,
        counters=counters,
        log=say,
        on_done=meter.done,
        on_landed=meter.landed,
        recorder=recorder,
        admission=admission,
    )


def sampling_defaults(checked: Checked, settings: RunSettings) -> SamplingDefaults:
    """The checkpoint's recommendation under the flags."""
    given, stated = settings.generation, checked.described.defaults
    return SamplingDefaults(
        temperature=stated.temperature if given.temperature is None else given.temperature,
        top_k=stated.top_k if given.top_k is None else given.top_k,
        top_p=stated.top_p if given.top_p is None else given.top_p,
        min_p=stated.min_p if given.min_p is None else given.min_p,
        max_tokens=given.max_tokens,
        seed_salt=given.seed_salt,
    )


def loading_line(checked: Checked) -> str:
    """The first line of the startup report."""
    plan = checked.described.plan
    size = checked.facts.weight_bytes
    weights = f"{size / 2**30:.2f} GiB" if size >= 2**30 // 10 else f"{size / 2**20:.1f} MiB"
    kind = plan.family if plan.family == plan.model_type else f"{plan.family} ({plan.model_type})"
    what = f"{kind}, {weights} of weights"
    return f"loading {checked.name}: {what}, backend {checked.backend} ({checked.why})"


def sampling_words(defaults: SamplingDefaults) -> str:
    """How replies are sampled when a request says nothing."""
    if defaults.temperature <= 0:
        return "greedy"
    words = [f"temperature {defaults.temperature:g}"]
    words += [f"top-p {defaults.top_p:g}"] if defaults.top_p < 1 else []
    words += [f"top-k {defaults.top_k}"] if defaults.top_k > 0 else []
    words += [f"min-p {defaults.min_p:g}"] if defaults.min_p > 0 else []
    return ", ".join(words)


def drafting(scheduler: Scheduler, drafts: bool) -> bool:
    """Whether a loaded engine verifies drafts, where `drafts` are wanted."""
    return drafts and scheduler.engine.model.limits.chain_width > 1


def memory_lines(memory: PlannedMemory, scheduler: Scheduler) -> list[str]:
    """Budget, weights, bytes of a stream, window: as reckoned before the load, or after it where that changed them."""
    limits = scheduler.engine.model.limits
    memory = settled(memory, widest_pass(limits, scheduler.chunk))
    own = memory.described.plan.context
    told = f"context: {scheduler.factory.context} tokens of the checkpoint's {own}, {memory.words}"
    return [*memory.lines(binds=scheduler.admission.binds), told]


def report_lines(checked: Checked, scheduler: Scheduler, engine: EngineSettings) -> list[str]:
    """What the load checks left, for the startup report."""
    drafts, heads = engine.drafts, engine.heads
    limits = scheduler.engine.model.limits
    lines = list(limits.notes)
    if not drafts:
        lines.append("drafts are off, as --no-drafts asked")
    elif not drafting(scheduler, drafts):
        lines.append("drafts are off: no window wider than one row kept its bits here")
    else:
        tree = f", trees of {limits.tree_width}" if limits.tree_width > 1 else ", no trees"
        head = head_words(limits, heads)
        lines.append(f"drafts: context copies, {head}windows of up to {limits.chain_width} rows{tree}")
        family, backend = family_of(checked.facts.config), checked.backend
        lines += head_lines(limits, heads, family, "cuda" if backend == "cuda" else "mlx", stored=checked.has_head)
    in_turn = "take rounds in turn, as shared rows did not keep their bits here"
    several = "share rounds" if limits.shares_rounds else in_turn
    shares = several if scheduler.parallel > 1 else "come one after another"
    share = f"decode share {scheduler.decode_share:g}"
    lines.append(f"streams: up to {scheduler.parallel}, they {shares}, {share}")
    if checked.memory is not None:
        lines += memory_lines(checked.memory, scheduler)
    return lines
