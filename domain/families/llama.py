"""The Llama family: grouped-query attention and a gated MLP around a plain residual, as data.

Also takes the Mistral and Qwen 2 spellings of the same decoder. Reads config.json only; never a weight, a file or a
backend.

Slots: `embedding`, `head` (own head only), `readout.norm`, and for layer N `layers.N.attention.pre_norm`,
`layers.N.attention.{q,k,v,out}`, `layers.N.mlp.pre_norm`, `layers.N.mlp.{gate,up,down}`. A bias is part of its module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.fields import ConfigError, Fields, either
from tensorfold.domain.families.naming import Names, name_weights
from tensorfold.domain.families.ops import Attention, Norm, SwiGLU
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import DecoderPlan, Embedding, Head, Layer, Readout, Sublayer
from tensorfold.domain.families.rope import read_rope
from tensorfold.domain.families.storage import Layout, Quantization, parse_quantization
from tensorfold.domain.families.tensors import TensorMap

MODEL_TYPES = ("llama", "mistral", "qwen2")
BACKENDS = ("mlx", "cuda")
CUDA_BITS, CUDA_GROUPS, _CUDA_INPUTS = (2, 3, 4, 5, 6, 8), (64, 128), 64
"""Layouts that the CUDA kernels read; they take inputs in groups of 64."""
_LAYER_TYPES = ("full_attention", "sliding_attention")
_ACTIVATIONS = ("silu", "swish")
_DTYPES = ("bfloat16", "float16", "float32")
_MOST_LAYERS, _MOST_WIDTH, _MOST_MLP, _MOST_VOCABULARY = 1_000, 131_072, 1_048_576, 4_194_304
_MOST_HEADS, _MOST_HEAD_DIM, _MOST_CONTEXT = 1_024, 1_024, 1 << 31
_IGNORED = ("*.rotary_emb.inv_freq",)
_NAMES: dict[str, Names] = {
    "embedding": "model.embed_tokens",
    "readout.norm": "model.norm",
    "head": "lm_head",
    "layers.*.attention.pre_norm": "model.layers.*.input_layernorm",
    "layers.*.attention.q": "model.layers.*.self_attn.q_proj",
    "layers.*.attention.k": "model.layers.*.self_attn.k_proj",
    "layers.*.attention.v": "model.layers.*.self_attn.v_proj",
    "layers.*.attention.out": "model.layers.*.self_attn.o_proj",
    "layers.*.mlp.pre_norm": "model.layers.*.post_attention_layernorm",
    "layers.*.mlp.gate": "model.layers.*.mlp.gate_proj",
    "layers.*.mlp.up": "model.layers.*.mlp.up_proj",
    "layers.*.mlp.down": "model.layers.*.mlp.down_proj",
}


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The decoder a config.json describes. Raises ConfigError with the field, its value and its limit."""
    fields = Fields(config)
    model_type = fields.word("model_type", MODEL_TYPES)
    width = fields.integer("hidden_size", 1, _MOST_WIDTH)
    vocabulary = fields.integer("vocab_size", 1, _MOST_VOCABULARY)
    norm = Norm(fields.number("rms_norm_eps", 1e-12, 1.0))
    tied = fields.flag("tie_word_embeddings", False)
    bare = DecoderPlan(
        family="llama",
        model_type=model_type,
        width=width,
        embedding=Embedding(vocabulary, width),
        layers=_layers(fields, model_type, width, norm),
        readout=Readout("norm", norm),
        head=Head(vocabulary, tied),
        context=fields.integer("max_position_embeddings", 1, _MOST_CONTEXT),
        activation=_activation(fields),
        tensors=TensorMap({}),
        stop_ids=fields.ids("eos_token_id", vocabulary),
    )
    # A tied checkpoint may repeat the embedding as lm_head; the embedding is the one that counts.
    ignored = (*_IGNORED, "lm_head.*") if tied else _IGNORED
    return replace(bare, tensors=TensorMap(name_weights(plan_weights(bare), _NAMES), ignored=ignored))


def refuse(config: Mapping[str, Any], backend: str) -> str | None:
    """Why a backend cannot serve a config, as one sentence that names the fix; None when it can."""
    if backend not in BACKENDS:
        return f"Llama models are served by MLX and CUDA, not by {backend}: start with `--backend mlx`."
    try:
        quantization = parse_quantization(config)
        made = plan(config)
    except ConfigError as error:
        return error.message
    return _refuse_cuda(made, quantization) if backend == "cuda" else None


def _refuse_cuda(plan: DecoderPlan, quantization: Quantization | None) -> str | None:
    """Why the CUDA kernels cannot read the matrices of a plan, as one sentence; None when they can."""
    for slot in plan.tensors.slots.values():
        name = slot.sources[0].name
        if slot.weight.rule != "matrix":
            continue
        if slot.shape[-1] % _CUDA_INPUTS:
            return (
                f"CUDA reads matrices whose inputs are a multiple of {_CUDA_INPUTS}, but config.json makes {name} "
                f"{slot.shape[-1]:,} wide: start with `--backend mlx`."
            )
        layout = None if quantization is None else _layout(name, quantization)
        if layout is not None and not (layout.bits in CUDA_BITS and layout.group in CUDA_GROUPS):
            return (
                f"Llama models are read by CUDA in {either(CUDA_BITS)} bits in groups of {either(CUDA_GROUPS)} or as "
                f"plain values, but config.json states {layout.bits} bits in groups of {layout.group} for {name}: "
                "start with `--backend mlx`."
            )
    return None


def _layout(name: str, quantization: Quantization) -> Layout | None:
    is_stated, layout = quantization.stated((name,))
    return layout if is_stated else quantization.default


def _activation(fields: Fields) -> str:
    # transformers 5 writes `dtype`, earlier versions `torch_dtype`.
    name = "dtype" if fields.has("dtype") else "torch_dtype"
    return fields.word(name, _DTYPES, "bfloat16")


def _layers(fields: Fields, model_type: str, width: int, norm: Norm) -> tuple[Layer, ...]:
    count = fields.integer("num_hidden_layers", 1, _MOST_LAYERS)
    fields.word("hidden_act", _ACTIVATIONS, "silu")
    mlp = SwiGLU(fields.integer("intermediate_size", 1, _MOST_MLP), bias=fields.flag("mlp_bias", False))
    windows = _windows(fields, model_type, count)
    by_window = {window: _attention(fields, model_type, width, window) for window in set(windows)}
    mixers = {window: Sublayer("attention", op, pre_norm=norm) for window, op in by_window.items()}
    return tuple((mixers[window], Sublayer("mlp", mlp, pre_norm=norm)) for window in windows)


def _attention(fields: Fields, model_type: str, width: int, window: int) -> Attention:
    heads = fields.integer("num_attention_heads", 1, _MOST_HEADS)
    kv_heads = fields.integer("num_key_value_heads", 1, heads, heads)
    if heads % kv_heads:
        raise fields.refusal("num_key_value_heads", f"a divisor of num_attention_heads ({heads:,})")
    if not fields.has("head_dim") and width % heads:
        raise fields.refusal("num_attention_heads", f"a divisor of hidden_size ({width:,}) when head_dim is not given")
    head_dim = fields.integer("head_dim", 2, _MOST_HEAD_DIM, width // heads)
    if head_dim % 2 or not 2 <= head_dim <= _MOST_HEAD_DIM:
        raise ConfigError(
            f"config.json makes each head {head_dim:,} wide; head_dim must be even and from 2 to {_MOST_HEAD_DIM:,}."
        )
    qkv_bias = fields.flag("attention_bias", model_type == "qwen2")
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        scale=head_dim**-0.5,
        rope=read_rope(fields, head_dim),
        window=window,
        qkv_bias=qkv_bias,
        out_bias=qkv_bias and model_type == "llama",
    )


def _windows(fields: Fields, model_type: str, count: int) -> tuple[int, ...]:
    """The window of each layer, 0 for full attention.

    `layer_types` decides where it is given. Without it a Mistral slides in every layer, a Qwen 2 from
    `max_window_layers` on when `use_sliding_window` is set, a Llama in every layer when that is set.
    """
    window = fields.integer("sliding_window", 1, _MOST_CONTEXT, 0)
    slides = fields.flag("use_sliding_window", model_type == "mistral") and window > 0
    first = fields.integer("max_window_layers", 0, 1 << 31, 28) if model_type == "qwen2" else 0
    listed = fields.words("layer_types", count, _LAYER_TYPES)
    if listed is None:
        return tuple(window if slides and layer >= first else 0 for layer in range(count))
    if "sliding_attention" in listed and not window:
        raise fields.refusal("sliding_window", "an integer of at least 1, since layer_types has sliding_attention")
    return tuple(window if kind == "sliding_attention" else 0 for kind in listed)
