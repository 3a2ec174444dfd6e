"""Tiny checkpoints of any listed family as running forwards, without the load check that serving does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx.forward import Forward, LaneState
from tensorfold.adapters.mlx.loader import Loading
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.runtime import current
from tensorfold.application.ports.backend import DrafterCheckpoint, ModelCheckpoint
from tensorfold.application.settings import DraftSettings
from tensorfold.domain.families.binding import bind, resolve
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.families.storage import parse_quantization
from tensorfold.domain.windows import Window, chain
from tests.synthetic.plan_checkpoints import PLANS, dflash_plan, write_checkpoint, write_drafter
from tests.synthetic.stored_slots import Quantized
from tests.synthetic.tiny_configs import tiny, tiny_drafter

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TinyFamily:
    """A written checkpoint of a family, and a drafter's beside it where there is one."""

    folder: Path
    plan: DecoderPlan
    drafter: DrafterCheckpoint | None = None

    def forward(self, ops: RowOps[Any], drafts: DraftSettings | None = None) -> Forward[Any]:
        """Running layers over some device's operations, and the head that the settings ask for."""
        loading = self.loading(drafts)
        decoder = loading.decoder(ops)
        return Forward(decoder, loading.head(decoder))

    def loading(self, drafts: DraftSettings | None = None) -> Loading:
        """The checkpoint as the backend loads it."""
        facts = FolderReader().facts(self.folder)
        bound = resolve(self.plan, facts.tensors, parse_quantization(facts.config))
        settings = drafts if drafts is not None else DraftSettings(drafter_bits=0)
        checkpoint = ModelCheckpoint(self.plan, bound, facts, settings, self.drafter)
        return Loading(checkpoint, current(), lambda line: None)


def tiny_family(
    folder: Path, family: str, seed: int = 5, *, quantization: Quantized | None = None, form: str = "mlx", **fields: Any
) -> TinyFamily:
    """Write a family's tiny checkpoint below `folder`; `fields` change its config."""
    config = tiny(family, **fields)
    path = write_checkpoint(folder / "checkpoint", config, seed, form, quantization)
    return TinyFamily(path, PLANS[family](config))


def with_drafter(one: TinyFamily, folder: Path, seed: int = 6, **fields: Any) -> tuple[TinyFamily, DFlashDrafter]:
    """The same with a drafter of blocks, written below `folder`."""
    config = tiny_drafter(**fields)
    facts = FolderReader().facts(write_drafter(folder / "drafter", config, seed))
    plan = dflash_plan(config)
    drafter = DrafterCheckpoint("drafter", plan, bind(plan.tensors, facts.tensors, None), facts)
    return TinyFamily(one.folder, one.plan, drafter), plan


def stepped(forward: Forward[Any], lane: LaneState[Any], tokens: list[int]) -> Logits:
    """Logits [T, V] of one-row steps, all kept."""
    rows = []
    for token in tokens:
        rows.append(forward.logits(lane, chain(token)))
        lane.keep((0,))
    return np.concatenate(rows)


def kept(forward: Forward[Any], lane: LaneState[Any], window: Window, path: tuple[int, ...]) -> Logits:
    """Logits of a window of which some rows stay."""
    logits = forward.logits(lane, window)
    lane.keep(path)
    return logits
