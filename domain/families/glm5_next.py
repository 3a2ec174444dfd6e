"""The GLM-5.3-Flash family: Kimi delta attention and indexed latent attention among four streams, and experts.

Reads config.json only; never a weight, a file or a backend. Vision parts of a multimodal config are not looked at. No
part of it knows positions.

Slots: `layers.N.delta.*` or `layers.N.attention.*`, `layers.N.mlp.*`, each with `residual.*` of its streams; `mtp.*`
for the draft head, a layer with one plain residual. Norm weights are plain scales.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tensorfold.domain.families.decoder_fields import (
    MOST_CONTEXT,
    MOST_HEAD_DIM,
    MOST_HEADS,
    MOST_KERNEL,
    MOST_MLP,
    MOST_WIDTH,
    Decoder,
    draft_layers,
    experts,
    layer_count,
    multiple,
    read_decoder,
)
from tensorfold.domain.families.fields import Fields
from tensorfold.domain.families.formats import Formats, refuse_config
from tensorfold.domain.families.glm5_next_names import decoder_names
from tensorfold.domain.families.naming import name_weights
from tensorfold.domain.families.ops import (
    BlockIndexer,
    KimiDelta,
    LatentAttention,
    MixtureOfExperts,
    Norm,
    Router,
    SharedExpert,
    ShortConv,
    SwiGLU,
)
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import (
    DecoderPlan,
    Dialect,
    Embedding,
    Head,
    HyperConnections,
    Layer,
    License,
    MemoryRule,
    MtpHead,
    Readout,
    Residual,
    Sublayer,
    Tap,
)
from tensorfold.domain.families.published import GLM5_NEXT
from tensorfold.domain.families.storage import AFFINE_GROUPS
from tensorfold.domain.families.tensors import TensorMap

MODEL_TYPES = ("glm5_next", "glm5_next_text")
LICENSE = License("MIT")
CONFIG = GLM5_NEXT
FORMATS = Formats(
    "GLM-5.3-Flash",
    "Vontra/GLM-5.3-Flash-MLX-4bit-MTP",
    {"mlx": ((4, 5, 6, 8), AFFINE_GROUPS), "cuda": ((4,), (64,))},
)
DIALECT = Dialect(
    think_open="<think>",
    think_close="</think>",
    opened_by_prompt=True,
    thinks=True,
    efforts=("low", "high", "max"),
    tool_calls="arg_key_value",
)
MEMORY = MemoryRule(share=0.85, up_to_gib=256)
_LATENT = ("deepseek_sparse_attention", "indexed_attention", "full_attention")
_DELTA = ("linear_attention", "kda")
_NESTED = ("num_heads", "head_dim", "short_conv_kernel_size", "gate_lower_bound")
_FLAT = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim", "linear_lower_bound")
_PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
_IGNORED = ("model.visual.*", "visual.*", "vision_model.*", "vision_tower.*")


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The decoder a config.json describes. Raises ConfigError with the field, its value and its limit."""
    decoder = read_decoder(config, MODEL_TYPES)
    fields, norm, count = decoder.fields, decoder.norm, layer_count(decoder.fields)
    kimi, latent = _kimi(fields, norm), _latent(fields, norm)
    dense, sparse = _mlps(fields)
    residual = _streams(fields, norm)
    drafts = draft_layers(fields, "num_nextn_predict_layers")
    attends, routes = _latent_layers(fields, count), _sparse_layers(fields, count)

    def layer(around: Residual, attending: bool, routing: bool) -> Layer:
        mixer = Sublayer("attention", latent, around, norm) if attending else Sublayer("delta", kimi, around, norm)
        return (mixer, Sublayer("mlp", sparse if routing else dense, around, norm))

    bare = DecoderPlan(
        family="glm5_next",
        model_type=decoder.model_type,
        width=decoder.width,
        embedding=Embedding(decoder.vocabulary, decoder.width),
        layers=tuple(layer(residual, *kinds) for kinds in zip(attends, routes, strict=True)),
        readout=Readout("stream_mean_norm", norm),
        head=Head(decoder.vocabulary, decoder.tied),
        context=decoder.context,
        activation=decoder.activation,
        tensors=TensorMap({}),
        stop_ids=decoder.stop_ids,
        dialect=DIALECT,
        mtp=_mtp(decoder, latent, sparse, count) if drafts else None,
        memory=MEMORY,
        license=LICENSE,
    )
    bits, groups = FORMATS.layouts["mlx"]
    table = TensorMap(
        name_weights(plan_weights(bare), decoder_names(kimi, latent, count)),
        prefixes=_PREFIXES,
        ignored=_IGNORED if drafts else (*_IGNORED, f"*layers.{count}.*", "*mtp.*"),
        bits=bits,
        groups=groups,
        together=("mtp.",),
    )
    return replace(bare, tensors=table)


def refuse(config: Mapping[str, Any], backend: str) -> str | None:
    """Why a backend cannot serve a config, as one sentence that names the fix; None when it can."""
    return refuse_config(FORMATS, plan, config, backend)


def _latent_layers(fields: Fields, count: int) -> tuple[bool, ...]:
    listed = fields.words("layer_types", count, (*_LATENT, *_DELTA))
    if listed is not None:
        return tuple(kind in _LATENT for kind in listed)
    linear = fields.group("linear_attn_config")
    if linear is not None and linear.has("full_attn_layers"):
        full = linear.integers("full_attn_layers", 0, count - 1, count)
        return tuple(index in full for index in range(count))
    return tuple(index % 4 == 3 for index in range(count))


def _sparse_layers(fields: Fields, count: int) -> tuple[bool, ...]:
    # Some files list the head of drafts as one layer more.
    for name in ("mlp_layer_types", "indexer_types"):
        value = fields.values.get(name)
        if isinstance(value, list) and len(value) == count + 1:
            fields = Fields(dict(fields.values) | {name: value[:count]}, fields.place)
    fields.words("indexer_types", count, ("full",))
    listed = fields.words("mlp_layer_types", count, ("dense", "sparse"))
    if listed is not None:
        return tuple(kind == "sparse" for kind in listed)
    first = fields.integer("first_k_dense_replace", 0, count)
    return tuple(index >= first for index in range(count))


def _kimi(fields: Fields, norm: Norm) -> KimiDelta:
    nested = fields.group("linear_attn_config")
    linear = nested or fields
    heads, head_dim, kernel, bound = _NESTED if nested else _FLAT
    count, width = linear.integer(heads, 1, MOST_HEADS), linear.integer(head_dim, 1, MOST_HEAD_DIM)
    # Without a bound the decay is another function, which only a config that says so may mean.
    free = not linear.has(bound) and not linear.flag("safe_gate", True)
    return KimiDelta(
        heads=count,
        head_dim=width,
        gate_rank=width,
        conv=ShortConv(count * width, linear.integer(kernel, 2, MOST_KERNEL)),
        norm=norm,
        lower_bound=None if free else linear.number(bound, -1e3, -1e-3),
    )


def _latent(fields: Fields, norm: Norm) -> LatentAttention:
    for name in ("mla_use_nope", "index_kpool_always_select_tail", "index_kpool_compress"):
        fields.only(name, True)
    fields.only("attention_bias", False)
    fields.only("qk_rope_head_dim", 0)
    count = fields.integer("num_attention_heads", 1, MOST_HEADS)
    fields.only("num_key_value_heads", count)
    keys = fields.integer("qk_nope_head_dim", 1, MOST_HEAD_DIM)
    index_heads, index_dim = (
        fields.integer("index_n_heads", 1, MOST_HEADS),
        fields.integer("index_head_dim", 1, MOST_HEAD_DIM),
    )
    ratio, budget = fields.integer("index_kpool", 1, 1_024), fields.integer("index_topk", 1, MOST_CONTEXT)
    multiple(fields, "index_topk", budget, ratio, "index_kpool")
    indexer = BlockIndexer(
        heads=index_heads,
        head_dim=index_dim,
        ratio=ratio,
        budget=budget,
        scale=(index_dim * index_heads) ** -0.5,
        pooling="gated",
        query_from="latent",
        k_norm=Norm(1e-6, layer=True),
        head_weights=True,
    )
    return LatentAttention(
        heads=count,
        q_rank=fields.integer("q_lora_rank", 1, MOST_WIDTH),
        kv_rank=fields.integer("kv_lora_rank", 1, MOST_WIDTH),
        key_dim=keys,
        rope_dim=0,
        value_dim=fields.integer("v_head_dim", 1, MOST_HEAD_DIM),
        scale=keys**-0.5,
        q_norm=norm,
        kv_norm=norm,
        indexer=indexer,
    )


def _mlps(fields: Fields) -> tuple[SwiGLU, MixtureOfExperts]:
    fields.word("hidden_act", ("silu", "swish"), "silu")
    fields.only("scoring_func", "sigmoid")
    fields.only("topk_method", "noaux_tc")
    for name in ("n_group", "topk_group", "n_shared_experts"):
        fields.only(name, 1)
    limit = fields.number("swiglu_limit", 0.0, 1e4)
    count, chosen = experts(fields, "n_routed_experts", "num_experts_per_tok")
    router = Router(
        count,
        chosen,
        "sigmoid",
        normalize=fields.flag("norm_topk_prob", True),
        correction=True,
        scale=fields.number("routed_scaling_factor", 1e-6, 1e6),
    )
    expert = SwiGLU(fields.integer("moe_intermediate_size", 1, MOST_MLP), limit=limit)
    dense = SwiGLU(fields.integer("intermediate_size", 1, MOST_MLP), limit=limit)
    return dense, MixtureOfExperts(router, expert, SharedExpert(expert))


def _streams(fields: Fields, norm: Norm) -> HyperConnections:
    fields.only("mhc", True)
    return HyperConnections(
        fields.integer("hc_mult", 2, 16),
        "sinkhorn",
        Norm(norm.eps, weight=False),
        iterations=fields.integer("hc_sinkhorn_iters", 1, 1_000),
        eps=fields.number("hc_eps", 0.0, 1.0),
    )


def _mtp(decoder: Decoder, latent: LatentAttention, sparse: MixtureOfExperts, count: int) -> MtpHead:
    norm = decoder.norm
    return MtpHead(
        layers=((Sublayer("attention", latent, pre_norm=norm), Sublayer("mlp", sparse, pre_norm=norm)),),
        tap=Tap(count, "readout"),
        embedding_norm=norm,
        hidden_norm=norm,
        join="concatenate",
        readout=Readout("norm", norm),
        feedback="readout",
        positions="none",
        zero_first_embedding=True,
    )
