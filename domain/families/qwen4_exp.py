"""The Qwen3.8 Flash Next family: delta nets and indexed attention among four streams, experts, a hashed n-gram table.

Reads config.json only; never a weight, a file or a backend. Vision parts of a multimodal config are not looked at.

Slots: `layers.N.ngram.*` where a table stands, `layers.N.delta.*` or `layers.N.attention.*`, `layers.N.mlp.*`, each
with `residual.*` of its streams; `readout.mixer.*`; `mtp.*` for the draft head, which shares embedding and head.
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
    multiple,
    read_decoder,
)
from tensorfold.domain.families.fields import ConfigError, Fields
from tensorfold.domain.families.formats import Formats, refuse_config
from tensorfold.domain.families.naming import name_weights
from tensorfold.domain.families.ngram_tables import multipliers, primes_from
from tensorfold.domain.families.ops import (
    Attention,
    BlockIndexer,
    HashedNgram,
    IndexedAttention,
    MixtureOfExperts,
    Norm,
    Router,
    SharedExpert,
    ShortConv,
    SwiGLU,
)
from tensorfold.domain.families.plan_weights import plan_weights
from tensorfold.domain.families.plans import (
    MODEL_CARD,
    DecoderPlan,
    Embedding,
    Head,
    HyperConnections,
    Layer,
    MtpHead,
    Readout,
    Sublayer,
    Tap,
)
from tensorfold.domain.families.published import QWEN4_EXP
from tensorfold.domain.families.qwen4_exp_names import PROBES, decoder_names
from tensorfold.domain.families.qwen_mixers import DIALECT, IGNORED, PREFIXES, full_layers, read_attention, read_delta
from tensorfold.domain.families.tensors import TensorMap

MODEL_TYPES = ("qwen4_exp", "qwen4_exp_text", "qwen3_8_flash_next")
LICENSE = MODEL_CARD
CONFIG = QWEN4_EXP
FORMATS = Formats(
    "Qwen3.8 Flash Next",
    "Vontra/Qwen3.8-Flash-Next-MLX-4bit-MTP",
    {"mlx": ((4,), (32,)), "cuda": ((4,), (32,))},
)
PREFILL_CHUNKS = (8192, 4096, 2048)
_MOST_STREAMS, _MOST_NGRAM, _MOST_TABLE_HEADS, _MOST_TABLES = 16, 8, 64, 8
_MOST_TABLE_ROWS, _MOST_SHARDS, _MOST_UNIT, _MOST_SEED = 1 << 40, 4_096, 1 << 20, 1 << 62


def plan(config: Mapping[str, Any]) -> DecoderPlan:
    """The decoder a config.json describes. Raises ConfigError with the field, its value and its limit."""
    decoder = read_decoder(config, MODEL_TYPES)
    fields, norm, width = decoder.fields, decoder.norm, decoder.width
    streams = fields.integer("hc_count", 2, _MOST_STREAMS)
    grouped = Norm(norm.eps, groups=streams)
    residual = HyperConnections(streams, "lowrank", grouped, rank=fields.integer("hc_lowrank", 1, MOST_WIDTH))
    attention = read_attention(fields, norm)
    indexer = _indexer(fields, attention, norm)
    experts_op = _experts(fields)
    mlp = Sublayer("mlp", experts_op, residual)
    full: Layer = (Sublayer("attention", IndexedAttention(attention, indexer), residual), mlp)
    # Without its field the two reference readings of the output gate differ, so it must be there.
    linear: Layer = (Sublayer("delta", read_delta(fields, norm), residual), mlp)
    attends = full_layers(fields)
    tables = _tables(decoder, attends, streams, grouped)
    drafts = draft_layers(fields, "mtp_num_hidden_layers")
    fields.only("mtp_use_dedicated_embeddings", False)
    bare = DecoderPlan(
        family="qwen4_exp",
        model_type=decoder.model_type,
        width=width,
        embedding=Embedding(decoder.vocabulary, width),
        layers=tuple(_table(tables.get(i)) + (full if attending else linear) for i, attending in enumerate(attends)),
        readout=Readout("hyper_mixer", mixer=residual),
        head=Head(decoder.vocabulary, decoder.tied),
        context=decoder.context,
        activation=decoder.activation,
        tensors=TensorMap({}),
        stop_ids=decoder.stop_ids,
        dialect=DIALECT,
        mtp=_mtp(full, residual, norm, len(attends)) if drafts else None,
        prefill_chunks=PREFILL_CHUNKS,
        license=LICENSE,
    )
    bits, groups = FORMATS.layouts["mlx"]
    names = decoder_names(width, indexer, experts_op, next(iter(tables.values()), None))
    table = TensorMap(
        name_weights(plan_weights(bare), names),
        prefixes=PREFIXES,
        ignored=IGNORED if drafts else (*IGNORED, "*mtp.*"),
        bits=bits,
        groups=groups,
        together=("mtp.",),
        probes=PROBES,
    )
    return replace(bare, tensors=table)


def refuse(config: Mapping[str, Any], backend: str) -> str | None:
    """Why a backend cannot serve a config, as one sentence that names the fix; None when it can."""
    return refuse_config(FORMATS, plan, config, backend)


def _indexer(fields: Fields, attention: Attention, norm: Norm) -> BlockIndexer:
    fields.only("indexer_kv_heads", 1)
    width = fields.integer("indexer_head_dim", 2, MOST_HEAD_DIM)
    ratio_name = fields.spelled("indexer_compress_ratio", "compress_ratio")
    ratio, budget = fields.integer(ratio_name, 1, 1_024), fields.integer("indexer_budget", 1, MOST_CONTEXT)
    multiple(fields, "indexer_budget", budget, ratio, ratio_name)
    assert attention.rope is not None
    if attention.rope.dims > width:
        raise fields.refusal("indexer_head_dim", f"at least the {attention.rope.dims} dimensions that turn")
    return BlockIndexer(
        heads=fields.integer("indexer_n_heads", 1, MOST_HEADS),
        head_dim=width,
        ratio=ratio,
        budget=budget,
        scale=width**-0.5,
        pooling="mean",
        query_from="input",
        q_norm=norm,
        k_norm=norm,
        rope=attention.rope,
    )


def _experts(fields: Fields) -> MixtureOfExperts:
    count, chosen = experts(fields, "num_experts", "num_experts_per_tok")
    return MixtureOfExperts(
        Router(count, chosen, "softmax", normalize=fields.flag("norm_topk_prob", True)),
        SwiGLU(fields.integer("moe_intermediate_size", 1, MOST_MLP)),
        SharedExpert(SwiGLU(fields.integer("shared_expert_intermediate_size", 1, MOST_MLP)), gated=True),
    )


def _table(table: HashedNgram | None) -> Layer:
    return () if table is None else (Sublayer("ngram", table),)


def _tables(decoder: Decoder, attends: tuple[bool, ...], streams: int, norm: Norm) -> dict[int, HashedNgram]:
    """The n-gram table of each layer that has one; the config counts layers from one."""
    fields = decoder.fields
    listed = sorted(set(fields.integers("ple_layer_ids", 1, len(attends), _MOST_TABLES)))
    for layer in listed:
        if attends[layer - 1]:
            raise ConfigError(f"{fields.place} puts a table into layer {layer} (ple_layer_ids), which must not attend.")
    return {layer - 1: _ngram(decoder, index, len(listed), streams, norm) for index, layer in enumerate(listed)}


def _ngram(decoder: Decoder, index: int, tables: int, streams: int, norm: Norm) -> HashedNgram:
    fields = decoder.fields
    size = fields.integer("ngram_size", 2, _MOST_NGRAM)
    each = fields.integer("heads_per_ngram", 1, _MOST_TABLE_HEADS)
    count = (size - 1) * each
    width = fields.integer("ple_embed_dim", 1, MOST_WIDTH, decoder.width)
    multiple(fields, "ple_embed_dim", width, count, "(ngram_size - 1) x heads_per_ngram")
    base = fields.integer("ngram_vocab_size_base", 2, _MOST_TABLE_ROWS)
    # All tables' primes are asked for at once: they follow each other, and are found one time.
    sizes = primes_from(base, tables * count)[index * count : (index + 1) * count]
    unit, shards = (
        fields.integer("make_ngram_vocab_size_divisible_by", 1, _MOST_UNIT),
        fields.integer("split_ngram_parts", 1, _MOST_SHARDS),
    )
    rows = -(-sum(sizes) // unit) * unit
    if rows % shards:
        raise fields.refusal("split_ngram_parts", f"a divisor of the table's {rows:,} rows")
    seed = fields.integer("seed", 0, _MOST_SEED, 1234)
    return HashedNgram(
        streams=streams,
        ngram=size,
        heads_per_ngram=each,
        table_sizes=sizes,
        multipliers=multipliers(seed, index, size, decoder.vocabulary),
        row_width=width // count,
        shards=shards,
        shard_rows=rows // shards,
        boundary_token=_boundary(decoder),
        conv=ShortConv(streams * decoder.width, fields.integer("ple_conv_kernel_size", 1, MOST_KERNEL), dilation=size),
        norm=norm,
    )


def _boundary(decoder: Decoder) -> int:
    """The token that ends a segment: the first of the end tokens, in the config's own order."""
    stated = decoder.fields.values.get("eos_token_id")
    first = stated[0] if isinstance(stated, list) and stated else stated
    if not decoder.stop_ids or not isinstance(first, int):
        raise decoder.fields.refusal("eos_token_id", "a token id, since n-grams end at it")
    return first


def _mtp(layer: Layer, residual: HyperConnections, norm: Norm, count: int) -> MtpHead:
    return MtpHead(
        layers=(layer,),
        tap=Tap(count, "streams"),
        embedding_norm=norm,
        hidden_norm=norm,
        join="add_per_stream",
        readout=Readout("hyper_mixer", mixer=residual),
        feedback="streams",
        positions="entry",
    )
