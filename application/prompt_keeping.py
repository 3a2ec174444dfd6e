"""From a loaded model to how its prompts are planned and kept: the chunk, the bytes that may be kept, the disk.

All of it follows from the plan, the budget and what was asked for, so it is the same on every start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tensorfold.application.engine import Engine
from tensorfold.application.kept_states import ForkSizes
from tensorfold.application.memory_planning import PlannedMemory, widest_pass
from tensorfold.application.ports.stores import SnapshotStore
from tensorfold.application.ports.target_model import ModelIdentity, ModelLimits
from tensorfold.application.prompt_cache import PromptCache
from tensorfold.application.settings import PromptSettings
from tensorfold.application.snapshots import SnapshotShelf
from tensorfold.domain.families.device_limits import apple_generation
from tensorfold.domain.families.state import StateEntry
from tensorfold.domain.memory.budgets import gib
from tensorfold.domain.memory.cuda_holding import PAGE, Room
from tensorfold.domain.memory.plan import MemoryPlan
from tensorfold.domain.prompts.chunks import ChunkRule
from tensorfold.domain.prompts.family_chunk import CONTEXT, card_chunks, choose_chunk
from tensorfold.domain.prompts.layout import accepts
from tensorfold.domain.prompts.markers import Markers
from tensorfold.domain.prompts.retained import PINNED

_TENSOR_UNITS = 5
"""The first generation of Apple's GPUs that has them."""
Accepts = Callable[[int, Sequence[tuple[str, int]]], bool]
OpenStore = Callable[[str, str, Accepts], SnapshotStore]
"""Opens a store of snapshots: a digest of the weights, an identity in words, the state spec's word on buffers."""


@dataclass(frozen=True, slots=True)
class KeepingPlan:
    """What is known before the model is loaded.

    `entries` are the plan's state spec; `chunks` the family's sizes, which are not asked for on a card.
    """

    settings: PromptSettings
    markers: Markers
    entries: tuple[StateEntry, ...]
    chunks: tuple[int, ...]


class ChunkMemory(Protocol):
    """Which chunk was chosen for a model on an earlier start, by `key`; a loss of it costs what is kept, no more."""

    def read(self, key: str) -> int | None:
        """The chunk; None where there is none that can be trusted."""
        ...

    def write(self, key: str, chunk: int) -> None:
        """Remember a chunk; a disk that refuses is no error."""
        ...


class PromptKeeping:
    """How one server keeps prompts; `plan` and `keep` are called by the engine's thread when the model is loaded."""

    def __init__(
        self,
        known: KeepingPlan,
        open_store: OpenStore | None,
        log: Callable[[str], None],
        chunks: ChunkMemory | None = None,
    ) -> None:
        """`chunks` is asked, and told, where the family leaves a choice."""
        self._known = known
        self._open = open_store
        self._chunks = chunks
        self._log = log
        self._chosen = ""
        self._shelf: SnapshotShelf | None = None
        self._note = ""
        self._ends = 0
        self.cache: PromptCache | None = None

    def plan(self, engine: Engine, memory: PlannedMemory) -> None:
        """Let the engine cut prompts as the family and the template say; the size of a chunk follows from `memory`."""
        model = engine.model
        chunk = self._chunk(memory, model.limits, model.identity)
        engine.prompts = PromptCache(model, ChunkRule(chunk, self._known.markers))

    def keep(self, engine: Engine, memory: PlannedMemory) -> PromptCache:
        """Let the engine keep states of prompts that are planned, within what `memory` leaves idle."""
        model, rule, settings = engine.model, engine.prompts.rule, self._known.settings
        if memory.pools is not None:
            return self._keep_ends(engine, memory, memory.pools)
        budget = self._budget(memory)
        if budget and self._open is not None:
            whole = identity_words(model.identity, rule, model.limits)
            self._shelf = SnapshotShelf(self._open(model.identity.weights, whole, self._accepts), self._log)
        self.cache = PromptCache(model, rule, budget, slots=settings.slots, shelf=self._shelf, log=self._log)
        engine.prompts = self.cache
        return self.cache

    def _keep_ends(self, engine: Engine, memory: PlannedMemory, pools: Room) -> PromptCache:
        """Keep prompt ends in the pools that were planned for them: any page may be theirs until a stream needs it."""
        found = memory.plan.footprint.pools
        assert found is not None
        sizes = ForkSizes(found.page, found.kept(), PAGE)
        pages = pools.pages - 1 - pools.kept
        budget = pools.kept * sizes.state + pages * sizes.page if pools.kept else 0
        slots = min(self._known.settings.slots, pools.kept)
        self._ends = pools.kept
        self.cache = PromptCache(engine.model, engine.prompts.rule, budget, slots=slots, sizes=sizes, log=self._log)
        engine.prompts = self.cache
        return self.cache

    def lines(self) -> list[str]:
        """The startup report's lines."""
        if self.cache is None:
            return []
        rule = self.cache.rule
        cut = "at assistant messages and the second message" if rule.markers.found else "on a plain grid"
        lines = [f"prompts: chunks of up to {rule.step} tokens{self._chosen}, cut {cut}"]
        if not self.cache.budget:
            return [*lines, "prompt cache: off"]
        if self._ends:
            return [*lines, f"prompt cache: up to {self._ends} prompt ends on the device, in pages no stream needs"]
        settings = self._known.settings
        kept = f"prompt cache: {gib(self.cache.budget)} in up to {settings.slots} states{self._note}"
        if self._shelf is None:
            return [*lines, f"{kept}; no snapshots on disk"]
        found = f"{len(self._shelf)} on disk ({gib(self._shelf.size)})"
        return [*lines, f"{kept}; snapshots: {found} in {_shown(str(settings.snapshots))}"]

    def close(self) -> None:
        """Return when what the server kept is on disk."""
        if self._shelf is not None:
            self._shelf.close()

    def _chunk(self, memory: PlannedMemory, limits: ModelLimits, identity: ModelIdentity) -> int:
        key = f"{identity.weights} | {identity.device}"
        if memory.pools is not None:
            # Pools were planned beside a chunk of so many rows, before anything was loaded.
            sizes, planned = card_chunks(memory.pools.lanes - 1), memory.plan.footprint.rows
            return self._remembered(sizes, lambda size: size <= planned, f"{key} | up to {sizes[0]}", True)

        def fits(size: int) -> bool:
            plan = _wider(memory.plan, widest_pass(limits, size))
            wanted = min(CONTEXT, memory.described.plan.context)
            return plan.fits(wanted)

        return self._remembered(self._known.chunks, fits, key, apple_generation(identity.device) >= _TENSOR_UNITS)

    def _remembered(self, sizes: tuple[int, ...], fits: Callable[[int], bool], key: str, tensor_units: bool) -> int:
        """The chunk that is chosen now, or what was on an earlier start where that stands."""
        chosen = choose_chunk(sizes, fits, tensor_units=tensor_units)
        if self._chunks is None or len(sizes) < 2:
            return chosen
        stands = choose_chunk(sizes, fits, tensor_units=tensor_units, before=self._chunks.read(key))
        if stands != chosen:
            self._chosen = f" as on an earlier start ({chosen} would fit now)"
        self._chunks.write(key, stands)
        return stands

    def _budget(self, memory: PlannedMemory) -> int:
        """What was asked for, as far as one full window and a round's work leave it."""
        idle = max(0, memory.plan.room - memory.plan.request(memory.window.tokens))
        asked = self._known.settings.budget
        if asked is not None and asked > idle:
            self._note = f" (--prompt-cache-gib asks for {gib(asked)}; more would not leave a full window its memory)"
        return idle if asked is None else min(asked, idle)

    def _accepts(self, tokens: int, buffers: Sequence[tuple[str, int]]) -> bool:
        return accepts(self._known.entries, tokens, buffers)


def kept_ends(settings: PromptSettings) -> int:
    """Prompt ends that a device may be asked to keep: those of conversations, and of shared beginnings."""
    return settings.slots + PINNED if settings.slots and settings.budget != 0 else 0


def identity_words(identity: ModelIdentity, rule: ChunkRule, limits: ModelLimits) -> str:
    """Everything that shapes a kept state, the weights first."""
    extra = [f"{name}={value}" for name, value in identity.extra]
    parts = (identity.weights, identity.runtime, identity.device, identity.kernels, *extra)
    return " | ".join((*parts, rule.name, f"slices of {limits.prefill_slice}"))


def _wider(plan: MemoryPlan, rows: int) -> MemoryPlan:

    return replace(plan, footprint=replace(plan.footprint, rows=max(rows, plan.footprint.rows)))


def _shown(folder: str) -> str:
    """A folder as one line shows it: as it is where it can be, else escaped."""
    return folder if folder.isprintable() else ascii(folder)
