"""Grouped-query attention: projections over all rows of a pass, keys read lane by lane.

Keys and values of a launch stay provisional in their lane's state until its `keep`. A row reads its lane's committed
keys and those of its own ancestors, in position order.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import norm_block
from tensorfold.adapters.mlx.blocks.rope import RopeBlock
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.states import KeyValues
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Attention

A = TypeVar("A")


class HeadProjections(Generic[A]):
    """Queries [R, H, D], keys and values [R, G, D], normed and turned, and the output gate [R, H * D], if any."""

    def __init__(self, assembly: Assembly[A], plan: Attention, path: str) -> None:
        self._ops, self._plan = assembly.ops, plan
        names = ("q", "k") if plan.values_from_keys else ("q", "k", "v")
        self._project = LinearBlock(assembly, tuple(f"{path}.{name}" for name in names))
        self._q_norm = norm_block(assembly, plan.q_norm, f"{path}.q_norm")
        self._k_norm = norm_block(assembly, plan.k_norm, f"{path}.k_norm")
        self._v_norm = norm_block(assembly, plan.v_norm, f"{path}.v_norm")
        self._rope = None if plan.rope is None else RopeBlock(assembly.ops, plan.rope)

    def __call__(self, rows: A, context: RowContext[A]) -> tuple[A, A, A, A | None]:
        """Queries, keys, values and gate of every row."""
        ops, plan = self._ops, self._plan
        made = self._project.split(rows)
        queries, keys = ops.heads(made[0], plan.heads), ops.heads(made[1], plan.kv_heads)
        values = keys if plan.values_from_keys else ops.heads(made[2], plan.kv_heads)
        queries, gate = self._gate(queries) if plan.output_gate else (queries, None)
        if self._q_norm is not None:
            queries = self._q_norm(queries)
        if self._k_norm is not None:
            keys = self._k_norm(keys)
        if self._v_norm is not None:
            values = self._v_norm(values)
        if self._rope is not None:
            queries, keys = self._rope(queries, context), self._rope(keys, context)
        return queries, keys, values, gate

    def _gate(self, heads: Any) -> tuple[A, A]:
        """Each head's rows are its queries, then its gate."""
        width = self._plan.head_dim
        return heads[:, :, :width], heads[:, :, width:].reshape(heads.shape[0], -1)


class AttentionBlock(Generic[A]):
    """Attention over every key, or those of a sliding window."""

    def __init__(self, assembly: Assembly[A], plan: Attention, path: str) -> None:
        if plan.softcap:
            raise RefusedError(f"The MLX backend has no attention of this form yet ({path}); update TensorFold.")
        self._ops, self._plan = assembly.ops, plan
        self._heads = HeadProjections(assembly, plan, path)
        self._out = LinearBlock(assembly, (f"{path}.out",))
        self._place = assembly.place(self, plan, path)

    def state(self, capacity: int) -> KeyValues[A]:
        """Empty state of this layer."""
        return self._ops.key_values(self._plan, capacity)

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The layer's output for every row."""
        ops = self._ops
        queries, keys, values, gate = self._heads(rows, context)
        read: Any = ops.join(
            [
                segment.states[self._place].attend(
                    ops.span(queries, segment.start, segment.stop),
                    ops.span(keys, segment.start, segment.stop),
                    ops.span(values, segment.start, segment.stop),
                    segment.layout,
                )
                for segment in context.segments
            ]
        )
        return self._out(read if gate is None else read * ops.sigmoid(gate))
