"""How `serve` keeps states of prompts: the template's markers, the family's chunk, the folder of snapshots."""

from __future__ import annotations

from tensorfold.application.markers import discover
from tensorfold.application.ports.stores import SnapshotStore
from tensorfold.application.ports.tokenizer import ChatTemplate
from tensorfold.application.prompt_keeping import Accepts, KeepingPlan, OpenStore, PromptKeeping
from tensorfold.domain.families.state import state_spec
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
    return PromptKeeping(known, store, say)
