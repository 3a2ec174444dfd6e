"""Tiny configs of every listed family in their published spelling: a few layers of each kind, past every boundary.

Sizes are as small as the ops allow and still fill groups of 32 or 64 where the real ones do. Windows are 8 tokens,
index budgets 8 keys in blocks of 4, convolutions have 4 taps, so some thirty tokens pass every boundary.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

VOCABULARY = 288
_STOP = 2
_QWEN_ROPE: dict[str, Any] = {
    "rope_type": "default",
    "rope_theta": 10_000,
    "partial_rotary_factor": 0.25,
    "mrope_section": [2, 1, 1],
    "mrope_interleaved": True,
}
_QWEN: dict[str, Any] = {
    "hidden_size": 64,
    "vocab_size": VOCABULARY,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "attention_bias": False,
    "full_attention_interval": 4,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "mamba_ssm_dtype": "float32",
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "rope_parameters": _QWEN_ROPE,
    "tie_word_embeddings": False,
    "eos_token_id": _STOP,
    "mtp_num_hidden_layers": 1,
    "mtp_use_dedicated_embeddings": False,
    "dtype": "float32",
}
_QWEN3_5 = _QWEN | {
    "model_type": "qwen3_5_text",
    "intermediate_size": 128,
    "attn_output_gate": True,
    "output_gate_type": "swish",
}
_QWEN4_EXP = _QWEN | {
    "model_type": "qwen4_exp_text",
    "output_gate_type": "sigmoid",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "hc_count": 4,
    "hc_lowrank": 32,
    "ple_layer_ids": [2],
    "ple_embed_dim": 128,
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "heads_per_ngram": 2,
    "ngram_vocab_size_base": 50,
    "make_ngram_vocab_size_divisible_by": 8,
    "split_ngram_parts": 2,
    "seed": 1234,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 16,
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
}
_NEMOTRON_H: dict[str, Any] = {
    "model_type": "nemotron_h",
    "hidden_size": 64,
    "vocab_size": VOCABULARY,
    "hybrid_override_pattern": "MEM*EM*E",
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "attention_bias": False,
    "mlp_bias": False,
    "use_bias": False,
    "mamba_proj_bias": False,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "ssm_state_size": 32,
    "n_groups": 2,
    "conv_kernel": 4,
    "use_conv_bias": True,
    "chunk_size": 16,
    "intermediate_size": 64,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "moe_shared_expert_intermediate_size": 128,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "moe_latent_size": None,
    "mlp_hidden_act": "relu2",
    "mamba_hidden_act": "silu",
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": False,
    "max_position_embeddings": 512,
    "num_nextn_predict_layers": 1,
    "mtp_hybrid_override_pattern": "*E",
    "bos_token_id": 1,
    "eos_token_id": _STOP,
    "pad_token_id": 0,
    "dtype": "float32",
}
_GLM5_NEXT: dict[str, Any] = {
    "model_type": "glm5_next_text",
    "hidden_size": 64,
    "vocab_size": VOCABULARY,
    "num_hidden_layers": 8,
    "layer_types": (["linear_attention"] * 3 + ["indexed_attention"]) * 2,
    "first_k_dense_replace": 3,
    "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 5,
    "intermediate_size": 128,
    "moe_intermediate_size": 64,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "scoring_func": "sigmoid",
    "topk_method": "noaux_tc",
    "n_group": 1,
    "topk_group": 1,
    "norm_topk_prob": True,
    "routed_scaling_factor": 2.5,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 0,
    "v_head_dim": 32,
    "mla_use_nope": True,
    "index_n_heads": 8,
    "index_head_dim": 32,
    "index_topk": 8,
    "index_kpool": 4,
    "index_kpool_always_select_tail": True,
    "index_kpool_compress": True,
    "linear_attn_config": {"num_heads": 2, "head_dim": 32, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0},
    "hc_mult": 4,
    "hc_eps": 1e-6,
    "hc_sinkhorn_iters": 20,
    "mhc": True,
    "swiglu_limit": 1.5,
    "rms_norm_eps": 1e-5,
    "attention_bias": False,
    "tie_word_embeddings": False,
    "max_position_embeddings": 512,
    "num_nextn_predict_layers": 1,
    "eos_token_id": [_STOP],
    "pad_token_id": 0,
    "dtype": "float32",
}
_GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text",
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "vocab_size": VOCABULARY,
    "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2,
    "sliding_window": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "num_global_key_value_heads": 1,
    "global_head_dim": 64,
    "attention_k_eq_v": True,
    "attention_bias": False,
    "num_kv_shared_layers": 0,
    "intermediate_size": 128,
    "enable_moe_block": True,
    "num_experts": 8,
    "top_k_experts": 2,
    "moe_intermediate_size": 64,
    "use_double_wide_mlp": False,
    "hidden_size_per_layer_input": 0,
    "hidden_activation": "gelu_pytorch_tanh",
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "proportional", "rope_theta": 1_000_000.0, "partial_rotary_factor": 0.25},
    },
    "final_logit_softcapping": 30.0,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": 1,
    "eos_token_id": [_STOP],
    "pad_token_id": 0,
    "dtype": "float32",
}
_DFLASH2: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["DFlash2DraftModel"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "attention_bias": False,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 512,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000},
    "layer_types": ["sliding_attention"] * 2,
    "sliding_window": 12,
    "use_sliding_window": True,
    "is_causal": False,
    "num_target_layers": 8,
    "tie_word_embeddings": False,
    "dtype": "float32",
    "dflash_config": {
        "block_size": 8,
        "mask_token_id": VOCABULARY - 1,
        "target_layer_ids": [1, 3, 6],
        "conv_kernel_size": 2,
        "conv_group_size": 16,
        "selector_rank": 8,
        "selector_top_k": 4,
    },
}
_TEXTS: dict[str, dict[str, Any]] = {
    "qwen3_5": _QWEN3_5,
    "qwen4_exp": _QWEN4_EXP,
    "nemotron_h": _NEMOTRON_H,
    "glm5_next": _GLM5_NEXT,
    "gemma4": _GEMMA4,
}
_ARCHITECTURES = {
    "qwen3_5": "Qwen3_5ForConditionalGeneration",
    "qwen4_exp": "Qwen4ExpForConditionalGeneration",
    "nemotron_h": "NemotronHForCausalLM",
    "glm5_next": "Glm5NextForConditionalGeneration",
    "gemma4": "Gemma4ForConditionalGeneration",
}
FAMILIES = tuple(_TEXTS)


def tiny(family: str, **changes: Any) -> dict[str, Any]:
    """A family's tiny config.json, its text part changed by field.

    Families whose published configs are multimodal keep the text part under `text_config`.
    """
    text = copy.deepcopy(_TEXTS[family]) | changes
    return wrapped(family, text)


def tiny_drafter(**changes: Any) -> dict[str, Any]:
    """The tiny config.json of a DFlash2 drafter, for the tiny `qwen3_5`, and `glm5_next` with other taps."""
    return copy.deepcopy(_DFLASH2) | changes


def wrapped(family: str, text: Mapping[str, Any]) -> dict[str, Any]:
    """A whole config.json around a family's text part."""
    top: dict[str, Any] = {"architectures": [_ARCHITECTURES[family]]}
    if family == "nemotron_h":
        return top | dict(text)
    shared = {name: text[name] for name in ("tie_word_embeddings", "eos_token_id", "dtype") if name in text}
    return top | {"model_type": family} | shared | {"text_config": dict(text)}


def text_part(config: Mapping[str, Any]) -> dict[str, Any]:
    """The text part of a config.json of either shape."""
    return dict(config.get("text_config", config))
