"""The tiny Llamas whose logits are compared: every rotary form, bias, tying, window and width of stored weights.

`mlx_lm` and `transformers` tell how each oracle sees the case: None when it cannot express it, else config fields that
differ there. What the other oracle cannot say is turned into an equal model it can (see `oracles.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.synthetic.llama_checkpoints import Layout, TinyLlama

TOKENS = 72
LARGEST = 1e-4


@dataclass(frozen=True, slots=True)
class Case:
    """One checkpoint to compare. `oracles` that can express it, with the config fields each must be given."""

    name: str
    shape: TinyLlama
    mlx_lm: Mapping[str, Any] | None = field(default_factory=dict)
    transformers: Mapping[str, Any] | None = field(default_factory=dict)

    def tokens(self) -> NDArray[np.int64]:
        """The ids that are fed."""
        generator = np.random.Generator(np.random.PCG64(1_000 + self.shape.seed))
        return (generator.random(TOKENS) * self.shape.vocabulary).astype(np.int64)


def _rope(**values: Any) -> dict[str, Any]:
    return {"rope_scaling": values}


_LLAMA3 = _rope(
    rope_type="llama3",
    factor=4.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
_YARN = _rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)
_MIXED = {"sliding_window": 7, "layer_types": ["sliding_attention", "full_attention"]}
_AS_QWEN2 = {"model_type": "qwen2", "use_sliding_window": True, **_MIXED}

_FORMS = (
    Case("plain", TinyLlama(seed=1)),
    Case("own_head", TinyLlama(seed=2, tied=False)),
    Case("linear", TinyLlama(seed=3, extra=_rope(rope_type="linear", factor=3.0))),
    Case("llama3", TinyLlama(seed=4, extra=_LLAMA3)),
    Case("yarn", TinyLlama(seed=5, context=128, extra=_YARN)),
    Case(
        "yarn_factor",
        TinyLlama(seed=6, context=128, extra={"rope_scaling": {**_YARN["rope_scaling"], "attention_factor": 1.3}}),
        None,
    ),
    Case("interleaved", TinyLlama(seed=7, extra={"rope_traditional": True})),
    Case("biases", TinyLlama(seed=8, qkv_bias=True, out_bias=True, mlp_bias=True)),
    Case("wide_heads", TinyLlama(seed=9, heads=4, kv_heads=1, head_dim=48)),
    Case("window_in_every_layer", TinyLlama(seed=10, extra={"model_type": "mistral", "sliding_window": 7}), None),
    Case("window_in_some_layers", TinyLlama(seed=11, extra=_MIXED), transformers=_AS_QWEN2),
    Case("qwen2_window", TinyLlama(seed=12, qkv_bias=True, extra=_AS_QWEN2), None),
    Case("qwen2", TinyLlama(seed=13, qkv_bias=True, tied=False, extra={"model_type": "qwen2", "attention_bias": None})),
    Case("bf16", TinyLlama(seed=14, dtype="BF16")),
    Case("f16", TinyLlama(seed=15, dtype="F16", shards=3)),
)
_WIDTHS = tuple(
    Case(f"affine_{bits}_{group}", TinyLlama(seed=100 * bits + group, quantization=Layout(bits, group)))
    for bits in (2, 3, 4, 5, 6, 8)
    for group in (32, 64, 128)
)
_STORED = (
    Case("affine_bf16_scales", TinyLlama(seed=21, dtype="BF16", quantization=Layout(4, 64), tied=False)),
    Case("affine_f16_scales", TinyLlama(seed=22, dtype="F16", quantization=Layout(4, 32), shards=2)),
    Case(
        "affine_overrides",
        TinyLlama(
            seed=23,
            tied=False,
            quantization=Layout(4, 64),
            overrides={
                "model.embed_tokens": Layout(8, 32),
                "model.layers.0.self_attn.v_proj": Layout(6, 128),
                "model.layers.1.mlp.down_proj": Layout(3, 32),
                "model.layers.1.self_attn.q_proj": None,
                "lm_head": None,
            },
        ),
    ),
    Case("affine_biases", TinyLlama(seed=24, quantization=Layout(5, 64), qkv_bias=True, out_bias=True, mlp_bias=True)),
)
CASES: tuple[Case, ...] = (*_FORMS, *_WIDTHS, *_STORED)
