"""The weights each op needs, by slot name and logical shape: the one list that families name and builders read.

Knows no checkpoint. A family gives names for these slots (`naming.py`); `info` counts parameters from them.
D is the width of a residual stream throughout; `none` splits are copied to every rank.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import singledispatch

from tensorfold.domain.families.ops import (
    Attention,
    BlockIndexer,
    FeedForward,
    GatedDelta,
    HashedNgram,
    IndexedAttention,
    KimiDelta,
    LatentAttention,
    Mamba2,
    MixtureOfExperts,
    Norm,
    Op,
    ShortConv,
    SwiGLU,
)
from tensorfold.domain.families.tensors import Weight

Weights = Iterator[tuple[str, Weight]]


@singledispatch
def op_weights(op: Op, width: int) -> Weights:
    """Slot names below the sublayer's path, and the weights, of one op on rows of `width`."""
    raise TypeError(f"{type(op).__name__} is no op of a plan")


def parameters(weights: Mapping[str, Weight]) -> int:
    """Values in all weights, biases included, integer constants left out."""
    return sum(
        math.prod(w.shape) + (math.prod(w.bias_shape(w.shape)) if w.bias else 0)
        for w in weights.values()
        if w.rule != "integer"
    )


def norm_weights(name: str, norm: Norm | None, width: int) -> Weights:
    """The weight of a norm over `width` values, when it has one; a LayerNorm's bias is part of its module."""
    if norm is not None and norm.weight:
        yield name, Weight((width,), rule="plain", bias=norm.layer)


def _conv(conv: ShortConv, channels: int, sections: tuple[int, ...] = ()) -> Weight:
    return Weight((channels, 1, conv.kernel), rule="conv", bias=conv.bias, split="rows", sections=sections)


def _per_head(heads: int) -> Weight:
    return Weight((heads,), rule="float32", split="rows")


@op_weights.register
def _(op: Attention, width: int) -> Weights:
    rows, kv_rows = op.heads * op.head_dim, op.kv_heads * op.head_dim
    yield "q", Weight((rows * (2 if op.output_gate else 1), width), bias=op.qkv_bias, split="rows")
    yield "k", Weight((kv_rows, width), bias=op.qkv_bias, split="rows")
    if not op.values_from_keys:
        yield "v", Weight((kv_rows, width), bias=op.qkv_bias, split="rows")
    yield "out", Weight((width, rows), bias=op.out_bias, split="columns")
    yield from norm_weights("q_norm", op.q_norm, op.head_dim)
    yield from norm_weights("k_norm", op.k_norm, op.head_dim)
    yield from norm_weights("v_norm", op.v_norm, op.head_dim)


@op_weights.register
def _(op: IndexedAttention, width: int) -> Weights:
    yield from op_weights(op.attention, width)
    yield from _indexer(op.indexer, width, width)


def _indexer(op: BlockIndexer, width: int, latent: int) -> Weights:
    yield "indexer.q", Weight((op.heads * op.head_dim, width if op.query_from == "input" else latent))
    yield "indexer.k", Weight((op.head_dim, width))
    yield from norm_weights("indexer.q_norm", op.q_norm, op.head_dim)
    yield from norm_weights("indexer.k_norm", op.k_norm, op.head_dim)
    if op.head_weights:
        yield "indexer.head_weights", Weight((op.heads, width))
    if op.pooling == "gated":
        yield "indexer.gate", Weight((op.head_dim, width), rule="plain")
        yield "indexer.offsets", Weight((op.ratio, op.head_dim), rule="float32")


@op_weights.register
def _(op: LatentAttention, width: int) -> Weights:
    yield "q_down", Weight((op.q_rank, width))
    yield from norm_weights("q_norm", op.q_norm, op.q_rank)
    yield "q_up", Weight((op.heads * (op.key_dim + op.rope_dim), op.q_rank), split="rows")
    yield "kv_down", Weight((op.kv_rank + op.rope_dim, width))
    yield from norm_weights("kv_norm", op.kv_norm, op.kv_rank)
    yield "key_up", Weight((op.heads, op.key_dim, op.kv_rank), split="heads")
    yield "value_up", Weight((op.heads, op.value_dim, op.kv_rank), split="heads")
    yield "out", Weight((width, op.heads * op.value_dim), split="columns")
    if op.indexer is not None:
        yield from _indexer(op.indexer, width, op.q_rank)


@op_weights.register
def _(op: GatedDelta, width: int) -> Weights:
    keys, values = op.key_heads * op.key_dim, op.value_heads * op.value_dim
    sections = (keys, keys, values)
    yield "qkv", Weight((2 * keys + values, width), split="rows", sections=sections)
    yield "z", Weight((values, width), split="rows")
    yield "b", Weight((op.value_heads, width), split="rows")
    yield "a", Weight((op.value_heads, width), split="rows")
    yield "conv", _conv(op.conv, op.conv.channels, sections)
    yield "decay_log", _per_head(op.value_heads)
    yield "step_bias", _per_head(op.value_heads)
    yield from norm_weights("norm", op.norm, op.value_dim)
    yield "out", Weight((width, values), split="columns")


@op_weights.register
def _(op: KimiDelta, width: int) -> Weights:
    inner = op.heads * op.head_dim
    for name in ("q", "k", "v"):
        yield name, Weight((inner, width), split="rows")
        yield f"{name}_conv", _conv(op.conv, inner)
    for name in ("decay", "gate"):
        yield f"{name}_down", Weight((op.gate_rank, width))
        yield f"{name}_up", Weight((inner, op.gate_rank), split="rows")
    yield "beta", Weight((op.heads, width), split="rows")
    yield "decay_log", _per_head(op.heads)
    yield "step_bias", _per_head(inner)
    yield from norm_weights("norm", op.norm, op.head_dim)
    yield "out", Weight((width, inner), split="columns")


@op_weights.register
def _(op: Mamba2, width: int) -> Weights:
    inner, shared = op.heads * op.head_dim, op.groups * op.state
    mixed = (inner, shared, shared)
    rows = (inner, *mixed, op.heads)
    yield "in", Weight((sum(rows), width), bias=op.projection_bias, split="rows", sections=rows)
    yield "conv", _conv(op.conv, op.conv.channels, mixed)
    yield "decay_log", _per_head(op.heads)
    yield "skip", _per_head(op.heads)
    yield "step_bias", _per_head(op.heads)
    if op.norm.weight:
        yield "norm", Weight((inner,), rule="plain", split="rows")
    yield "out", Weight((width, inner), bias=op.projection_bias, split="columns")


@op_weights.register
def _(op: SwiGLU, width: int) -> Weights:
    yield "gate", Weight((op.width, width), bias=op.bias, split="rows")
    yield from _up_and_down(op.width, width, op.bias)


@op_weights.register
def _(op: FeedForward, width: int) -> Weights:
    yield from _up_and_down(op.width, width, op.bias)


def _up_and_down(inner: int, width: int, bias: bool) -> Weights:
    yield "up", Weight((inner, width), bias=bias, split="rows")
    yield "down", Weight((width, inner), bias=bias, split="columns")


@op_weights.register
def _(op: MixtureOfExperts, width: int) -> Weights:
    router, inner = op.router, op.latent or width
    yield "router", Weight((router.experts, width), rule="router")
    yield from norm_weights("router.norm", router.input_norm, width)
    if router.correction:
        yield "router.correction", Weight((router.experts,), rule="float32")
    if router.input_scale:
        yield "router.input_scale", Weight((width,), rule="plain")
    if router.expert_scale:
        yield "router.expert_scale", Weight((router.experts,), rule="plain")
    for name, weight in op_weights(op.expert, inner):
        yield f"experts.{name}", Weight((router.experts, *weight.shape), bias=weight.bias, split=weight.split)
    if op.latent:
        yield "latent_down", Weight((inner, width))
        yield "latent_up", Weight((width, inner))
    if op.shared is not None:
        yield from ((f"shared.{name}", weight) for name, weight in op_weights(op.shared.op, width))
        if op.shared.gated:
            yield "shared.switch", Weight((1, width))


@op_weights.register
def _(op: HashedNgram, width: int) -> Weights:
    heads = (op.ngram - 1) * op.heads_per_ngram
    rows, streams = heads * op.row_width, op.streams * width
    yield "table", Weight((op.shards, op.shard_rows, op.row_width))
    yield "key", Weight((streams, rows))
    yield "value", Weight((width, rows))
    for name in ("key_norm", "query_norm", "conv_norm"):
        yield from norm_weights(name, op.norm, streams)
    yield "conv", Weight((op.conv.channels, 1, op.conv.kernel), rule="conv", bias=op.conv.bias)
    yield "multipliers", Weight((op.ngram,), rule="integer", optional=True)
    yield "table_sizes", Weight((heads,), rule="integer", optional=True)
    yield "offsets", Weight((heads,), rule="integer", optional=True)
