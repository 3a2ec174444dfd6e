"""config.json and generation_config.json of a converted llama, as objects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tensorfold.adapters.packages.gguf_blocks import GROUP
from tensorfold.adapters.packages.llama_shape import LlamaShape
from tensorfold.adapters.packages.llama_tensors import LlamaLayout


def config_object(
    shape: LlamaShape, layout: LlamaLayout, special: Mapping[str, int], widths: Mapping[str, int]
) -> dict[str, Any]:
    """config.json. `special` holds token ids by `bos`, `eos`, `pad`; `widths` the bits of affine modules, if any."""
    config: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": shape.width,
        "intermediate_size": shape.inner,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.theta,
        "rms_norm_eps": shape.eps,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": layout.tied,
        "attention_bias": layout.attention_bias,
        "mlp_bias": layout.mlp_bias,
        "torch_dtype": "float16" if widths else "bfloat16",
        **token_ids(special),
    }
    if shape.linear_factor != 1.0:
        config["rope_scaling"] = {"rope_type": "linear", "factor": shape.linear_factor}
    if widths:
        config["quantization"] = quantization_object(widths)
    return config


def generation_object(special: Mapping[str, int]) -> dict[str, Any]:
    """generation_config.json: the special tokens; a GGUF file recommends no sampling."""
    return token_ids(special)


def token_ids(special: Mapping[str, int]) -> dict[str, int]:
    """Special tokens under the names configs use."""
    return {f"{name}_token_id": special[name] for name in ("bos", "eos", "pad") if name in special}


def quantization_object(widths: Mapping[str, int]) -> dict[str, Any]:
    """MLX's block: the commonest width at the top, the modules of another width by name."""
    (common, _), *_ = Counter(widths.values()).most_common()
    block: dict[str, Any] = {"group_size": GROUP, "bits": common}
    block.update({name: {"group_size": GROUP, "bits": bits} for name, bits in widths.items() if bits != common})
    return block
