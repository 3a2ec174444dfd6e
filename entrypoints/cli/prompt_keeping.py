"""How `serve` keeps states of prompts: the template's markers, the family's chunk, the folder of snapshots."""

from __future__ import annotations

from pathlib import Path

from tensorfold.application.markers import discover
from tensorfold.application.ports.stores import SnapshotStore
from tensorfold.application.ports.tokenizer import ChatTemplate
from tensorfold.application.prompt_keeping import Accepts, KeepingPlan, OpenStore, PromptKeeping, identity_words
from tensorfold.application.proving_prompts import MakeShelf
from tensorfold.application.scheduler import Scheduler
from tensorfold.application.snapshots import SnapshotShelf
from tensorfold.domain.families.state import state_spec
from tensorfold.domain.prompts.chunks import ChunkRule
from tensorfold.domain.prompts.layout import accepts
from tensorfold.entrypoints.cli.opening import Checked, Say
from tensorfold.entrypoints.container import Container
from tensorfold.entrypoints.settings import RunSettings


def keeping(
    checked: Checked, template: ChatTemplate, settings: RunSettings, container: Container, say: Say
) -> PromptKeeping:
    """What the engine's thread attaches to the model when it is loaded. Nothing is read or made on disk yet."""
    plan, wanted = checked.described.plan, settings.prompts
    drafter = None if checked.drafter is None else checked.drafter.plan
    known = KeepingPlan(wanted, discover(template, checked.tokenizer), state_spec(plan, drafter), plan.prefill_chunks)
    folder = wanted.snapshots
    store: OpenStore | None = None
    if folder is not None:

        def opened(model: str, identity: str, accepts: Accepts) -> SnapshotStore:
            made: SnapshotStore = container.snapshots(folder, model, identity, accepts, say)
            return made

        store = opened
    return PromptKeeping(known, store, say, container.chunks())


def shelves(folder: Path, checked: Checked, scheduler: Scheduler, container: Container, say: Say) -> MakeShelf:
    """Kept states of a command's own, in a folder of its own; for a loaded model."""
    drafter = None if checked.drafter is None else checked.drafter.plan
    entries = state_spec(checked.described.plan, drafter)
    model = scheduler.engine.model

    def made(rule: ChunkRule) -> SnapshotShelf:
        whole = identity_words(model.identity, rule, model.limits)
        store = container.snapshots(
            folder, model.identity.weights, whole, lambda tokens, buffers: accepts(entries, tokens, buffers), say
        )
        return SnapshotShelf(store)

    return made
