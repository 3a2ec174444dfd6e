"""A small Llama's config, with fields changed or removed as a test needs."""

from __future__ import annotations

from typing import Any

REMOVED = object()

_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "rope_theta": 10_000.0,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}


def llama_config(**changed: Any) -> dict[str, Any]:
    """A valid config with `changed` fields; a field set to REMOVED is left out."""
    return {name: value for name, value in (_LLAMA | changed).items() if value is not REMOVED}
