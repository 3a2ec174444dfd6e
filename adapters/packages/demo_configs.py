"""What the demo's configuration files will say, told before its weights are fetched.

The weights are pinned by their digest, so this is a fact about them; a test holds it to the converted files.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tensorfold.adapters.packages.config_files import config_object, generation_object
from tensorfold.adapters.packages.llama_shape import LlamaShape
from tensorfold.adapters.packages.llama_tensors import LlamaLayout
from tensorfold.adapters.packages.weight_conversion import Form

_SHAPE = LlamaShape(
    layers=30,
    width=576,
    inner=1536,
    heads=9,
    kv_heads=3,
    head_dim=64,
    vocabulary=49_152,
    context=8192,
    theta=100_000.0,
    eps=1e-05,
    linear_factor=1.0,
)
_SPECIAL = {"bos": 1, "eos": 2, "pad": 2}
_MATRICES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
_MLP = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")


def foretold(form: Form) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """config.json and generation_config.json of a form of the demo."""
    layout = LlamaLayout({}, tied=True, attention_bias=False, mlp_bias=False)
    widths = _widths() if form is Form.REPACKED else {}
    return config_object(_SHAPE, layout, _SPECIAL, widths), generation_object(_SPECIAL)


def _widths() -> dict[str, int]:
    """Bits of every module of the package's own codes."""
    modules = [f"model.layers.{layer}.{name}" for layer in range(_SHAPE.layers) for name in (*_MATRICES, *_MLP)]
    return {**dict.fromkeys(modules, 4), "model.embed_tokens": 8}
