"""Grouped-query attention: projections over all rows of a pass, keys read lane by lane.

Keys and values of a launch stay provisional in their lane's state until its `keep`. A row reads its lane's committed
keys and those of its own ancestors, in position order.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import norm_block
from tensorfold.adapters.mlx.blocks.rope import RopeBlock
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.rows import KeyValues, RowOps
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Attention

A = TypeVar("A")


class AttentionBlock(Generic[A]):
    """`place` is this layer's entry in a lane's states. Raises RefusedError for what is not built here yet."""

    def __init__(self, ops: RowOps[A], plan: Attention, path: str, place: int, weights: WeightReader) -> None:
        if plan.output_gate or plan.values_from_keys or plan.softcap or plan.v_norm:
            raise RefusedError(f"The MLX backend has no attention of this form yet ({path}); update TensorFold.")
        self._ops, self._plan, self._place = ops, plan, place
        self._project = LinearBlock(ops, (f"{path}.q", f"{path}.k", f"{path}.v"), weights)
        self._out = LinearBlock(ops, (f"{path}.out",), weights)
        self._q_norm = norm_block(ops, plan.q_norm, f"{path}.q_norm", weights)
        self._k_norm = norm_block(ops, plan.k_norm, f"{path}.k_norm", weights)
        self._rope = None if plan.rope is None else RopeBlock(ops, plan.rope)

    def state(self, capacity: int) -> KeyValues[A]:
        """Empty state of this layer."""
        return self._ops.key_values(self._plan, capacity)

    def __call__(self, rows: A, context: RowContext[A]) -> A:
        """The layer's output for every row."""
        ops, plan = self._ops, self._plan
        made = self._project(rows)
        wide, narrow = plan.heads * plan.head_dim, plan.kv_heads * plan.head_dim
        queries = ops.heads(ops.columns(made, 0, wide), plan.heads)
        keys = ops.heads(ops.columns(made, wide, wide + narrow), plan.kv_heads)
        values = ops.heads(ops.columns(made, wide + narrow, wide + 2 * narrow), plan.kv_heads)
        if self._q_norm is not None:
            queries = self._q_norm(queries)
        if self._k_norm is not None:
            keys = self._k_norm(keys)
        if self._rope is not None:
            queries, keys = self._rope(queries, context), self._rope(keys, context)
        read = [
            segment.states[self._place].attend(
                ops.span(queries, segment.start, segment.stop),
                ops.span(keys, segment.start, segment.stop),
                ops.span(values, segment.start, segment.stop),
                segment.layout,
            )
            for segment in context.segments
        ]
        return self._out(ops.join(read))
