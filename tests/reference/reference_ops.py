"""Every op of a plan over the float64 references: one row in, one row out, memory left in the row's lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    Rope,
    ShortConv,
    SwiGLU,
)
from tensorfold.domain.families.rope import inverse_frequencies
from tensorfold.kernels.reference.attention import attend, in_window, output_gated, split_output_gate
from tensorfold.kernels.reference.block_indexer import best_blocks, block_scores, chosen_keys, pool_gated, pool_mean
from tensorfold.kernels.reference.experts import mix_experts, shared_expert
from tensorfold.kernels.reference.feed_forward import feed_forward
from tensorfold.kernels.reference.gated_delta import gated_delta_step, gated_norm
from tensorfold.kernels.reference.hashed_ngram import gated_value, ngram_rows, seen_tokens
from tensorfold.kernels.reference.kimi_delta import channel_decay, kimi_delta_step
from tensorfold.kernels.reference.latent_attention import attend_absorbed
from tensorfold.kernels.reference.linear import linear
from tensorfold.kernels.reference.mamba2 import gate_then_norm, mamba2_step, step_sizes
from tensorfold.kernels.reference.norm import layer_norm, rms_norm
from tensorfold.kernels.reference.rope import rotate
from tensorfold.kernels.reference.router import choose_experts, router_input
from tensorfold.kernels.reference.short_conv import no_history, short_conv
from tensorfold.kernels.reference.swiglu import swiglu
from tests.reference.lane import RowContext
from tests.reference.slot_reader import SlotReader

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots below one path; `[name]` gives the values, `linear` and `norm` apply them."""

    reader: SlotReader
    path: str

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.reader[f"{self.path}.{name}" if self.path else name]

    def below(self, name: str) -> Slots:
        """The slots one name further down."""
        return Slots(self.reader, f"{self.path}.{name}" if self.path else name)

    def full(self, name: str) -> str:
        """The whole path of a slot or buffer."""
        return f"{self.path}.{name}"

    def linear(self, name: str, row: Floats) -> Floats:
        """A projection with its bias."""
        return linear(row, self[name], self.reader.bias(f"{self.path}.{name}" if self.path else name))

    def norm(self, name: str, norm: Norm | None, row: Floats) -> Floats:
        """A norm, or the row as it is where there is none."""
        if norm is None:
            return row
        if norm.layer:
            bias = self.reader.bias(f"{self.path}.{name}")
            assert bias is not None
            return layer_norm(row, self[name], bias, norm.eps)
        return rms_norm(row, self[name] if norm.weight else None, norm.eps, norm.groups)


@singledispatch
def apply(op: Op, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    """What an op makes of a row [D], or a hashed table of all streams [S, D]; `residual` is the row before its norm."""
    raise TypeError(f"{type(op).__name__} has no reference")


def turned(rope: Rope | None, heads: Floats, position: int) -> Floats:
    """Heads [H, D] turned to a position."""
    if rope is None:
        return heads
    frequencies = inverse_frequencies(rope)
    made: Floats = rotate(
        heads[None],
        np.array([position]),
        frequencies,
        interleaved=rope.interleaved,
        factor=rope.attention_factor,
    )[0]
    return made


@apply.register
def _(op: Attention, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    return _attend(op, slots, row, at, None)


@apply.register
def _(op: IndexedAttention, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    return _attend(op.attention, slots, row, at, _indexed(op.indexer, slots, row, row, at))


def _attend(op: Attention, slots: Slots, row: Floats, at: RowContext, chosen: Sequence[int] | None) -> Floats:
    query = slots.linear("q", row).reshape(op.heads, -1)
    gate = None
    if op.output_gate:
        query, gate = split_output_gate(query)
    raw = slots.linear("k", row).reshape(op.kv_heads, op.head_dim)
    value = raw if op.values_from_keys else slots.linear("v", row).reshape(op.kv_heads, op.head_dim)
    query = turned(op.rope, slots.norm("q_norm", op.q_norm, query), at.position)
    at.leave(slots.full("keys"), turned(op.rope, slots.norm("k_norm", op.k_norm, raw), at.position))
    at.leave(slots.full("values"), slots.norm("v_norm", op.v_norm, value))
    keys, values = at.along(slots.full("keys")), at.along(slots.full("values"))
    places = range(len(keys))
    reads = in_window(places, places, op.window) if chosen is None else chosen
    mixed = attend(query[None], keys, values, [reads], op.scale, op.softcap)[0]
    if gate is not None:
        mixed = output_gated(mixed, gate)
    return slots.linear("out", mixed.reshape(-1))


def _indexed(op: BlockIndexer, slots: Slots, row: Floats, query_from: Floats, at: RowContext) -> list[int]:
    """Places on the path that a row reads."""
    key = slots.linear("indexer.k", row)
    gated = op.pooling == "gated"
    if gated:
        # These keys are normed before they are pooled, the others after it.
        key = slots.norm("indexer.k_norm", op.k_norm, key)
        at.leave(slots.full("index_gates"), slots["indexer.gate"] @ row)
    at.leave(slots.full("index_keys"), key)
    length = len(at.row.path)
    if length % op.ratio == 0:
        block = at.along(slots.full("index_keys"))[-op.ratio :]
        if gated:
            pooled = pool_gated(block, at.along(slots.full("index_gates"))[-op.ratio :], slots["indexer.offsets"])
        else:
            first = at.lane.rows[at.row.path[-op.ratio]].position
            normed = slots.norm("indexer.k_norm", op.k_norm, pool_mean(block))
            pooled = turned(op.rope, normed[None], first)[0]
        at.leave(slots.full("pooled_keys"), pooled)
    pools = at.along(slots.full("pooled_keys"))
    if not len(pools):
        return chosen_keys([], op.ratio, length)
    heads = slots.linear("indexer.q", query_from).reshape(op.heads, op.head_dim)
    heads = turned(op.rope, slots.norm("indexer.q_norm", op.q_norm, heads), at.position)
    weights = slots.linear("indexer.head_weights", row) if op.head_weights else None
    kept = best_blocks(block_scores(heads, pools, op.scale, weights), op.budget // op.ratio)
    return chosen_keys(kept, op.ratio, length)


@apply.register
def _(op: LatentAttention, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    if op.rope_dim:
        raise NotImplementedError("the rotated part's frequencies are in no plan yet")
    query_latent = slots.norm("q_norm", op.q_norm, slots.linear("q_down", row))
    query = slots.linear("q_up", query_latent).reshape(op.heads, op.key_dim)
    at.leave(slots.full("latent"), slots.norm("kv_norm", op.kv_norm, slots.linear("kv_down", row)))
    latents = at.along(slots.full("latent"))
    reads: Sequence[int] = range(len(latents))
    if op.indexer is not None:
        reads = _indexed(op.indexer, slots, row, query_latent, at)
    mixed = attend_absorbed(query, latents, reads, slots["key_up"], slots["value_up"], op.scale)
    return slots.linear("out", mixed.reshape(-1))


def _convolved(conv: ShortConv, row: Floats, taps: Floats, bias: Floats | None, path: str, at: RowContext) -> Floats:
    history = at.before(path, no_history(len(row), conv.kernel, conv.dilation))
    made, after = short_conv(history, row, taps[:, 0], conv.dilation, bias, conv.activation)
    at.leave(path, after)
    return made


@apply.register
def _(op: GatedDelta, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    raw = slots.linear("qkv", row)
    mixed = _convolved(op.conv, raw, slots["conv"], slots.reader.bias(slots.full("conv")), slots.full("conv"), at)
    empty = np.zeros((op.value_heads, op.key_dim, op.value_dim))
    made, after = gated_delta_step(
        at.before(slots.full("recurrent"), empty),
        mixed,
        slots.linear("a", row),
        slots.linear("b", row),
        slots["decay_log"],
        slots["step_bias"],
        op.key_heads,
        op.l2_eps,
    )
    at.leave(slots.full("recurrent"), after)
    z = slots.linear("z", row).reshape(op.value_heads, op.value_dim)
    weight = slots["norm"] if op.norm.weight else np.ones(op.value_dim)
    return slots.linear("out", gated_norm(made, z, weight, op.norm.eps, op.gate).reshape(-1))


@apply.register
def _(op: KimiDelta, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    raw = np.concatenate([slots.linear(name, row) for name in "qkv"])
    taps = np.concatenate([slots[f"{name}_conv"] for name in "qkv"])
    shape = (op.heads, op.head_dim)
    query, key, value = _convolved(op.conv, raw, taps, None, slots.full("conv"), at).reshape(3, *shape)
    decay = channel_decay(
        slots.linear("decay_up", slots.linear("decay_down", row)).reshape(shape),
        slots["decay_log"],
        slots["step_bias"].reshape(shape),
        op.lower_bound,
    )
    state = at.before(slots.full("recurrent"), np.zeros((op.heads, op.head_dim, op.head_dim)))
    made, after = kimi_delta_step(state, query, key, value, decay, slots.linear("beta", row), op.l2_eps)
    at.leave(slots.full("recurrent"), after)
    z = slots.linear("gate_up", slots.linear("gate_down", row)).reshape(shape)
    return slots.linear("out", gated_norm(made, z, slots["norm"], op.norm.eps, "sigmoid").reshape(-1))


@apply.register
def _(op: Mamba2, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    inner, shared = op.heads * op.head_dim, op.groups * op.state
    z, raw, dt = np.split(slots.linear("in", row), [inner, 2 * inner + 2 * shared])
    mixed = _convolved(op.conv, raw, slots["conv"], slots.reader.bias(slots.full("conv")), slots.full("conv"), at)
    made, after = mamba2_step(
        at.before(slots.full("recurrent"), np.zeros((op.heads, op.head_dim, op.state))),
        mixed,
        step_sizes(dt, slots["step_bias"], op.step_limit),
        slots["decay_log"],
        slots["skip"],
        op.groups,
    )
    at.leave(slots.full("recurrent"), after)
    weight = slots["norm"] if op.norm.weight else None
    return slots.linear("out", gate_then_norm(made.reshape(-1), z, weight, op.norm.eps, op.norm.groups))


@apply.register
def _(op: SwiGLU, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    return _mlp(op, slots, row)


@apply.register
def _(op: FeedForward, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    return _mlp(op, slots, row)


def _mlp(op: SwiGLU | FeedForward, slots: Slots, row: Floats, expert: int | None = None) -> Floats:
    """An MLP, or one expert of stacked ones."""
    if op.bias:
        raise NotImplementedError("no listed family has biases in its MLPs")

    def weight(name: str) -> Floats:
        return slots[name] if expert is None else slots[name][expert]

    if isinstance(op, SwiGLU):
        return swiglu(row, weight("gate"), weight("up"), weight("down"), op.activation, op.limit)
    return feed_forward(row, weight("up"), weight("down"), op.activation)


@apply.register
def _(op: MixtureOfExperts, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    router = op.router
    read = residual if router.from_residual else row
    if router.input_norm is not None:
        norm_weight = slots["router.norm"] if router.input_norm.weight else None
        scale = slots["router.input_scale"] if router.input_scale else None
        read = router_input(read, norm_weight, router.input_norm.eps, router.input_factor, scale)
    chosen, weights = choose_experts(
        slots.linear("router", read),
        router.chosen,
        router.scoring,
        normalize=router.normalize,
        over_chosen=router.over_chosen,
        correction=slots["router.correction"] if router.correction else None,
        scale=router.scale,
        expert_scale=slots["router.expert_scale"] if router.expert_scale else None,
    )
    inner = slots.linear("latent_down", row) if op.latent else row
    experts = slots.below("experts")
    made = mix_experts(inner, chosen, weights, lambda expert, x: _mlp(op.expert, experts, x, expert))
    if op.latent:
        made = slots.linear("latent_up", made)
    if op.shared is None:
        return made
    switch = slots["shared.switch"] if op.shared.gated else None
    return made + shared_expert(row, _mlp(op.shared.op, slots.below("shared"), row), switch)


@apply.register
def _(op: HashedNgram, slots: Slots, row: Floats, at: RowContext, residual: Floats) -> Floats:
    history = at.before(slots.full("tokens"), [op.boundary_token] * (op.ngram - 1))
    at.leave(slots.full("tokens"), [*history[1:], at.row.token])
    seen = seen_tokens(history, at.row.token, op.boundary_token)
    numbers = ngram_rows(seen, op.multipliers, op.table_sizes, op.heads_per_ngram)
    table = slots["table"]
    found = np.concatenate([table[number // op.shard_rows, number % op.shard_rows] for number in numbers])
    flat, shape = row.reshape(-1), row.shape
    key = slots.norm("key_norm", op.norm, slots.linear("key", found)).reshape(shape)
    query = slots.norm("query_norm", op.norm, flat).reshape(shape)
    entered = gated_value(key, query, slots.linear("value", found)).reshape(-1)
    normed = slots.norm("conv_norm", op.norm, entered)
    convolved = _convolved(op.conv, normed, slots["conv"], None, slots.full("conv"), at)
    return (entered + convolved).reshape(shape)
