"""Gated attention restricted, for each row, to the blocks of keys that its indexer chooses and the unfinished tail."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.attention import HeadProjections
from tensorfold.adapters.mlx.blocks.indexer import IndexerBlock
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.past_rows import PastRows
from tensorfold.adapters.mlx.blocks.recurrence import StatePair
from tensorfold.adapters.mlx.blocks.sparse_reads import read_lane
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import IndexedAttention

A = TypeVar("A")


class IndexedAttentionBlock(Generic[A]):
    """Attention whose keys, values and index keys are all cached; one choice of blocks serves all heads."""

    def __init__(self, assembly: Assembly[A], plan: IndexedAttention, path: str) -> None:
        attention = plan.attention
        if attention.softcap or attention.window or plan.indexer.query_from != "input":
            raise RefusedError(
                f"The MLX backend has no indexed attention of this form yet ({path}); update TensorFold."
            )
        self._ops, self._plan = assembly.ops, plan
        self._heads = HeadProjections(assembly, attention, path)
        self._indexer = IndexerBlock(assembly, plan.indexer, f"{path}.indexer")
        self._out = LinearBlock(assembly, (f"{path}.out",))
        self._place = assembly.place(self, plan, path)

    def state(self, capacity: int) -> StatePair[A]:
        """Keys, values, and the indexer's part."""
        shape = (self._plan.attention.kv_heads, self._plan.attention.head_dim)
        past = (PastRows(self._ops, shape, capacity) for _ in range(2))
        return StatePair(*past, *self._indexer.state(capacity))

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The layer's output for every row."""
        ops = self._ops
        queries, keys, values, gate = self._heads(rows, context)
        index = self._indexer.project(rows, rows, context)
        made = []
        for segment in context.segments:
            held_keys, held_values, *held_index = segment.states[self._place].parts
            span, layout = (segment.start, segment.stop), segment.layout
            held_keys.put(ops.span(keys, *span), layout)
            held_values.put(ops.span(values, *span), layout)
            choice = self._indexer.enter(index, held_index, segment)
            past = (held_keys, held_values)
            made.append(read_lane(ops, ops.span(queries, *span), past, layout, self._plan.attention.scale, choice))
        read: Any = ops.join(made)
        read = read.reshape(read.shape[0], -1)
        return self._out(read if gate is None else read * ops.sigmoid(gate))
