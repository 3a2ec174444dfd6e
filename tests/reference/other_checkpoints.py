"""The same weights in a form that another library reads: dense float32 in the original layout, or an equal small model.

A head of drafts has no class of its own in either library. It is given as a model of its family whose only layers are
the head's, fed with rows instead of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.tensors import Weight
from tests.reference.slot_reader import SlotReader
from tests.synthetic.plan_checkpoints import PLANS, family_of, write_values
from tests.synthetic.tiny_configs import text_part, wrapped

Floats = NDArray[np.float64]
_HEAD_ALONE: Mapping[str, Mapping[str, Any]] = {
    "qwen3_5": {"num_hidden_layers": 1, "layer_types": ["full_attention"], "mtp_num_hidden_layers": 0},
    "qwen4_exp": {
        "num_hidden_layers": 1,
        "layer_types": ["full_attention"],
        "mtp_num_hidden_layers": 0,
        "ple_layer_ids": [],
    },
    "nemotron_h": {"num_hidden_layers": 2, "hybrid_override_pattern": "*E", "num_nextn_predict_layers": 0},
    "glm5_next": {
        "num_hidden_layers": 1,
        "layer_types": ["indexed_attention"],
        "mlp_layer_types": ["sparse"],
        "first_k_dense_replace": 0,
        "num_nextn_predict_layers": 0,
        "hc_mult": 2,
        "hc_eps": 1e-12,
    },
}


@dataclass(frozen=True, slots=True)
class ReadValues:
    """Slot values taken from another checkpoint, below `root` there; `instead` are values of slots it lacks."""

    reader: SlotReader
    root: str = ""
    instead: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def values(self, path: str, weight: Weight) -> NDArray[Any]:
        """A slot's values."""
        if path in self.instead:
            return self.instead[path]
        return self.reader[self._there(path)]

    def bias(self, path: str, shape: tuple[int, ...]) -> Floats:
        """The bias beside a slot's module."""
        found = self.reader.bias(self._there(path))
        assert found is not None and found.shape == shape
        return found

    def _there(self, path: str) -> str:
        shared = path in ("embedding", "head")
        return path if shared or not self.root else f"{self.root}.{path}"


def dense_twin(folder: Path, config: Mapping[str, Any], twin: Path) -> Path:
    """A checkpoint's values in float32 and the original layout, written to `twin`."""
    plain = _plain(config)
    table = PLANS[family_of(plain)](plain).tensors
    return write_values(twin, plain, ReadValues(SlotReader.of(folder, table)), "hf")


def head_alone(folder: Path, config: Mapping[str, Any], twin: Path) -> tuple[Path, dict[str, Any]]:
    """A model of the family made of the draft head's layers, with its config."""
    family = family_of(config)
    alone = wrapped(family, text_part(_plain(config)) | dict(_HEAD_ALONE[family]))
    reader = SlotReader.of(folder, PLANS[family](config).tensors)
    instead = _plain_residuals(alone) if family == "glm5_next" else {}
    return write_values(twin, alone, ReadValues(reader, "mtp", instead), "hf"), alone


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in ("quantization", "quantization_config")}


def _plain_residuals(config: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Weights that make two streams behave as one plain residual: read the first, write to both, mix evenly."""
    made: dict[str, NDArray[Any]] = {}
    for path, slot in PLANS[family_of(config)](config).tensors.slots.items():
        if ".residual." in path:
            made[path] = np.zeros(slot.shape)
            if path.endswith(".base"):
                made[path][:2] = 40.0, -40.0
    return made
