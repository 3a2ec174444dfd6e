"""Attention of every kind over the references: grouped, restricted by an indexer, and over latents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.ops import Attention, BlockIndexer, IndexedAttention, LatentAttention, Rope
from tensorfold.domain.families.rope import inverse_frequencies
from tensorfold.kernels.reference.attention import attend, in_window, output_gated, split_output_gate
from tensorfold.kernels.reference.block_indexer import best_blocks, block_scores, chosen_keys, pool_gated, pool_mean
from tensorfold.kernels.reference.latent_attention import attend_absorbed
from tensorfold.kernels.reference.rope import rotate
from tests.reference.lane import RowContext
from tests.reference.slots import Slots, apply

Floats = NDArray[np.float64]


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
    query_latent = slots.norm("q_norm", op.q_norm, slots.linear("q_down", row))
    query = slots.linear("q_up", query_latent).reshape(op.heads, op.key_dim + op.rope_dim)
    latent, raw = np.split(slots.linear("kv_down", row), [op.kv_rank])
    # One turned part a token, that all heads share, is cached behind its latent.
    shared = turned(op.rope, raw[None], at.position)[0]
    at.leave(slots.full("latent"), np.concatenate([slots.norm("kv_norm", op.kv_norm, latent), shared]))
    latents, moved = np.split(at.along(slots.full("latent")), [op.kv_rank], axis=1)
    reads: Sequence[int] = range(len(latents))
    if op.indexer is not None:
        reads = _indexed(op.indexer, slots, row, query_latent, at)
    parts = (turned(op.rope, query[:, op.key_dim :], at.position), moved) if op.rope_dim else None
    still = query[:, : op.key_dim]
    mixed = attend_absorbed(still, latents, reads, slots["key_up"], slots["value_up"], op.scale, parts)
    return slots.linear("out", mixed.reshape(-1))
