"""Attention over one cached latent a token, in the absorbed form: queries go into the latents' space, results out.

Source: multi-head latent attention of the DeepSeek-V2 report (arXiv 2405.04434). Keys and values are the same cached
rows; with `rope_dim` each has that many more values behind the latent, turned by position, which only scores read.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.indexer import IndexerBlock
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import NormBlock
from tensorfold.adapters.mlx.blocks.past_rows import PastRows
from tensorfold.adapters.mlx.blocks.recurrence import StatePair
from tensorfold.adapters.mlx.blocks.rope import RopeBlock
from tensorfold.adapters.mlx.blocks.sparse_reads import read_lane
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import LatentAttention

A = TypeVar("A")


class LatentAttentionBlock(Generic[A]):
    """Latents of every token, read by all heads; an indexer may choose which."""

    def __init__(self, assembly: Assembly[A], plan: LatentAttention, path: str) -> None:
        if (plan.rope is None) != (plan.rope_dim == 0):
            raise RefusedError(f"{path} has {plan.rope_dim} cached values that turn, but not the angles they turn by.")
        ops, weights = assembly.ops, assembly.weights
        self._ops, self._plan = ops, plan
        self._down = LinearBlock(assembly, (f"{path}.q_down", f"{path}.kv_down"))
        self._q_norm = NormBlock(assembly, plan.q_norm, f"{path}.q_norm")
        self._kv_norm = NormBlock(assembly, plan.kv_norm, f"{path}.kv_norm")
        self._q_up = LinearBlock(assembly, (f"{path}.q_up",))
        keys, keys_swapped = weights.heads(f"{path}.key_up")
        values, values_swapped = weights.heads(f"{path}.value_up")
        self._into = ops.per_head(keys, back=not keys_swapped)
        self._out_of = ops.per_head(values, back=values_swapped)
        self._rope = None if plan.rope is None else RopeBlock(ops, plan.rope)
        self._indexer = None if plan.indexer is None else IndexerBlock(assembly, plan.indexer, f"{path}.indexer")
        self._out = LinearBlock(assembly, (f"{path}.out",))
        self._place = assembly.place(self, plan, path)

    def state(self, capacity: int) -> StatePair[A]:
        """Latents, and the indexer's part."""
        past = PastRows(self._ops, (1, self._plan.kv_rank + self._plan.rope_dim), capacity)
        return StatePair(past, *(() if self._indexer is None else self._indexer.state(capacity)))

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The layer's output for every row."""
        ops, plan = self._ops, self._plan
        low, latents = self._down.split(rows)
        low = self._q_norm(low)
        queries, latents = self._queries(low, context), self._latents(latents, context)
        index = None
        if self._indexer is not None and plan.indexer is not None:
            index = self._indexer.project(rows, low if plan.indexer.query_from == "latent" else rows, context)
        made = []
        for segment in context.segments:
            held, *held_index = segment.states[self._place].parts
            span, layout = (segment.start, segment.stop), segment.layout
            held.put(ops.span(latents, *span), layout)
            choice = None
            if self._indexer is not None and index is not None:
                choice = self._indexer.enter(index, held_index, segment)
            made.append(read_lane(ops, ops.span(queries, *span), (held, held), layout, plan.scale, choice))
        mixed: Any = ops.join(made)
        read: Any = self._out_of(mixed[:, :, : plan.kv_rank])
        return self._out(read.reshape(read.shape[0], -1))

    def _queries(self, low: A, context: RowContext[A]) -> A:
        """Queries [R, H, kv_rank + rope_dim] in the space of cached rows."""
        ops, plan = self._ops, self._plan
        heads: Any = ops.heads(self._q_up(low), plan.heads)
        inside = self._into(heads[:, :, : plan.key_dim])
        if self._rope is None:
            return inside
        turned = self._rope(heads[:, :, plan.key_dim :], context)
        made: A = ops.xp.concatenate([inside, turned], axis=-1)
        return made

    def _latents(self, made: A, context: RowContext[A]) -> A:
        """What is cached of every row, [R, 1, kv_rank + rope_dim]."""
        ops, rank = self._ops, self._plan.kv_rank
        latent = self._kv_norm(ops.columns(made, 0, rank))
        if self._rope is None:
            return ops.heads(latent, 1)
        turned = self._rope(ops.heads(ops.columns(made, rank, rank + self._plan.rope_dim), 1), context)
        cached: A = ops.xp.concatenate([ops.heads(latent, 1), turned], axis=-1)
        return cached
