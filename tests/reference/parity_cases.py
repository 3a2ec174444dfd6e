"""The tiny checkpoints whose logits are compared with other libraries: each family in its published forms, and options.

Seventy-two tokens pass every boundary: windows of 8, index budgets of 8 keys in blocks of 4, convolutions of 4 and of
10 rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tensorfold.domain.families.plans import DecoderPlan
from tests.reference.reference_model import ReferenceModel
from tests.synthetic.plan_checkpoints import LAYOUTS, PLANS, write_checkpoint
from tests.synthetic.tiny_configs import tiny

LARGEST = 1e-4
POSITIONS = (0, 2, 3, 4, 7, 8, 9, 10, 11, 12, 13, 35, 70)
"""Rows whose logits are kept: around each boundary, and late ones."""


@dataclass(frozen=True, slots=True)
class Case:
    """One checkpoint and the libraries that can read it; `head` compares its draft head as well."""

    name: str
    family: str
    form: str = "hf"
    affine: bool = False
    oracles: tuple[str, ...] = ("transformers",)
    head: bool = False
    changes: Mapping[str, Any] = field(default_factory=dict)
    dtype: str = "F32"
    seed: int = 2

    @property
    def config(self) -> dict[str, Any]:
        """config.json."""
        return tiny(self.family, **self.changes)

    @property
    def plan(self) -> DecoderPlan:
        """The family's plan of it."""
        return PLANS[self.family](self.config)

    def write(self, folder: Path) -> Path:
        """Write the checkpoint into a folder."""
        layout = LAYOUTS[self.family] if self.affine else None
        return write_checkpoint(folder, self.config, self.seed, self.form, layout, self.dtype)

    def model(self, folder: Path) -> ReferenceModel:
        """The float64 model of the checkpoint, written into a folder first."""
        return ReferenceModel.load(self.write(folder), self.plan)


_BOTH = ("transformers", "mlx_lm")
_PUBLISHED = (
    Case("qwen3_5", "qwen3_5", head=True),
    Case("qwen3_5_affine", "qwen3_5", "mlx", True, _BOTH),
    Case("qwen4_exp", "qwen4_exp", head=True),
    Case("qwen4_exp_affine", "qwen4_exp", "mlx", True),
    Case("nemotron_h", "nemotron_h", head=True),
    Case("nemotron_h_affine", "nemotron_h", "mlx", True, _BOTH, head=True),
    Case("glm5_next", "glm5_next", head=True),
    Case("glm5_next_affine", "glm5_next", "mlx", True),
    Case("glm5_next_stacked", "glm5_next", "mlx_stacked", True, head=True),
    Case("gemma4", "gemma4"),
    Case("gemma4_affine", "gemma4", "mlx", True, _BOTH),
)
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000,
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "partial_rotary_factor": 0.25,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}
_UNBOUNDED = {
    "num_heads": 2,
    "head_dim": 32,
    "short_conv_kernel_size": 4,
    "gate_lower_bound": None,
    "safe_gate": False,
}
_OPTIONS = (
    Case("qwen3_5_bf16", "qwen3_5", dtype="BF16"),
    Case("qwen3_5_yarn", "qwen3_5", changes={"rope_parameters": _YARN}),
    Case("qwen4_exp_silu", "qwen4_exp", changes={"output_gate_type": "silu"}),
    Case("nemotron_h_latent", "nemotron_h", changes={"moe_latent_size": 32}),
    # transformers cuts steps by other fields, so mlx-lm alone stands behind these limits.
    Case("nemotron_h_limits", "nemotron_h", "mlx", oracles=("mlx_lm",), changes={"time_step_limit": [0.05, 0.2]}),
    Case("glm5_next_unbounded", "glm5_next", changes={"linear_attn_config": _UNBOUNDED}),
    Case("gemma4_all_experts", "gemma4", changes={"top_k_experts": 8}),
)
CASES: tuple[Case, ...] = (*_PUBLISHED, *_OPTIONS)
