"""DFlash2: a drafter of blocks that reads five taps of its target, published for the 27B and for GLM's Flash."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from tensorfold.domain.families.naming import Names, name_weights
from tensorfold.domain.families.ops import Attention, Norm, Rope, SwiGLU
from tensorfold.domain.families.plan_weights import drafter_weights
from tensorfold.domain.families.plans import DFlashDrafter, Layer, Sublayer, Tap
from tensorfold.domain.families.qwen3_5 import MLP, placed
from tensorfold.domain.families.tensors import Source, TensorMap

CONFIG: dict[str, Any] = {
    "hidden_size": 5120,
    "intermediate_size": 17408,
    "num_hidden_layers": 5,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "vocab_size": 248320,
    "rope_theta": 10_000_000,
    "sliding_window": 2048,
    "is_causal": False,
    "block_size": 8,
    "mask_token_id": 248070,
    "target_layer_ids": [5, 19, 33, 47, 61],
    "conv_kernel_size": 2,
    "conv_group_size": 16,
    "selector_rank": 256,
    "selector_top_k": 16,
}
GLM_CONFIG: dict[str, Any] = CONFIG | {
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "vocab_size": 154880,
    "mask_token_id": 154856,
    "target_layer_ids": [5, 14, 24, 33, 42],
}
_ATTENTION: dict[str, Names] = {
    slot: f"self_attn.{name}"
    for slot, name in {
        "q": "q_proj",
        "k": "k_proj",
        "v": "v_proj",
        "out": "o_proj",
        "q_norm": "q_norm",
        "k_norm": "k_norm",
    }.items()
}
NAMES: dict[str, Names] = {
    "context": "fc",
    "context_norm": "hidden_norm",
    "output_norm": "norm",
    "selector.projection": "candidate_selector.hidden_projection",
    "selector.predecessor": Source("candidate_selector.predecessor_codebook", module=False),
    "selector.successor": Source("candidate_selector.successor_codebook", module=False),
    "layers.*.attention.pre_norm": "layers.*.input_layernorm",
    **placed("layers.*.attention", "layers.*", _ATTENTION),
    "layers.*.attention.mix.base": Source("layers.*.attention_conv.base_kernel", module=False),
    "layers.*.attention.mix.projection": "layers.*.attention_conv.kernel_projection",
    "layers.*.mlp.pre_norm": "layers.*.post_attention_layernorm",
    **placed("layers.*.mlp", "layers.*", MLP),
    "layers.*.mlp.mix.base": Source("layers.*.mlp_conv.base_kernel", module=False),
    "layers.*.mlp.mix.projection": "layers.*.mlp_conv.kernel_projection",
}


def plan(config: Mapping[str, Any], tap: Literal["residual", "stream_mean"] = "residual") -> DFlashDrafter:
    """The draft model; a tap of the target's layer L is read after L + 1 finished layers."""
    norm, head_dim, window = Norm(config["rms_norm_eps"]), config["head_dim"], config["sliding_window"]
    attention = Attention(
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=Rope(head_dim, float(config["rope_theta"])),
        window=window,
        q_norm=norm,
        k_norm=norm,
    )
    layer: Layer = (
        Sublayer("attention", attention, pre_norm=norm),
        Sublayer("mlp", SwiGLU(config["intermediate_size"]), pre_norm=norm),
    )
    bare = DFlashDrafter(
        family="dflash2",
        layers=(layer,) * config["num_hidden_layers"],
        taps=tuple(Tap(index + 1, tap) for index in config["target_layer_ids"]),
        context_norm=norm,
        output_norm=norm,
        block=config["block_size"],
        mask_token=config["mask_token_id"],
        window=window,
        causal=config["is_causal"],
        conv_taps=config["conv_kernel_size"],
        conv_group=config["conv_group_size"],
        selector_rank=config["selector_rank"],
        candidates=config["selector_top_k"],
        width=config["hidden_size"],
        vocabulary=config["vocab_size"],
    )
    return replace(bare, tensors=TensorMap(name_weights(drafter_weights(bare), NAMES)))
