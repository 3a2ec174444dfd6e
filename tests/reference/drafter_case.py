"""A tiny DFlash2 drafter whose convolutions are identities: then it is the drafter that transformers knows as DFlash.

Rows of taps and of the block are drawn here, so no target takes part.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.plans import DFlashDrafter
from tests.reference.slot_reader import SlotReader
from tests.synthetic.plan_checkpoints import dflash_plan, write_drafter
from tests.synthetic.slot_values import generator
from tests.synthetic.tiny_configs import tiny_drafter

Floats = NDArray[np.float64]
CONTEXTS = (0, 1, 3, 11, 12, 13, 30)
"""Numbers of committed tokens: none, inside the window of 12, at it and past it."""


@dataclass(frozen=True, slots=True)
class DrafterCase:
    """The drafter's plan, its slots with identity convolutions, and the rows it is fed."""

    plan: DFlashDrafter
    reader: SlotReader

    @staticmethod
    def of(folder: Path) -> DrafterCase:
        """The case, its checkpoint written into a folder."""
        plan = dflash_plan(tiny_drafter())
        reader = SlotReader.of(write_drafter(folder, tiny_drafter(), 4), plan.tensors)
        for path in plan.tensors.slots:
            if path.endswith("mix.base"):
                identity = np.zeros(reader[path].shape)
                identity[:, 0] = 1.0
                reader.put(path, identity)
            elif path.endswith("mix.projection"):
                reader.put(path, np.zeros(reader[path].shape))
        return DrafterCase(plan, reader)

    def rows(self, context: int) -> tuple[Floats, Floats]:
        """Tap rows [T, taps * D] of a context and the block's embedded rows [L, D]."""
        draw = generator(9, f"context {context}").random
        width = self.plan.width
        taps = draw((context, len(self.plan.taps) * width)) * 2 - 1
        return taps, draw((self.plan.block, width)) * 2 - 1

    def config_there(self) -> dict[str, Any]:
        """The fields of transformers' config. Its window counts one key more than ours."""
        config = tiny_drafter()
        same = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
        names = (*same, "head_dim", "rms_norm_eps", "rope_parameters", "max_position_embeddings")
        taps = config["dflash_config"]["target_layer_ids"]
        return {name: config[name] for name in names} | {
            "sliding_window": config["sliding_window"] - 1,
            "target_layer_ids": taps,
        }
