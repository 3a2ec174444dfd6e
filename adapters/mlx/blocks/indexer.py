"""The choice of keys for a sparse attention: blocks of neighbouring tokens, pooled into one key each and scored.

A block's key depends on its own tokens alone, and is there once its last one is. Every row chooses among the blocks
that are complete where it stands, on its own path; while those fit the budget it chooses nothing and reads all.
Scores are float32 and ties go to the lower block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.adapters.mlx.blocks.linear import LinearBlock
from tensorfold.adapters.mlx.blocks.norm import norm_block
from tensorfold.adapters.mlx.blocks.past_rows import PastRows
from tensorfold.adapters.mlx.blocks.rope import RopeBlock
from tensorfold.adapters.mlx.layouts import Layout
from tensorfold.adapters.mlx.reads import best_blocks
from tensorfold.adapters.mlx.row_context import RowContext, Segment
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.states import Path
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import BlockIndexer

A = TypeVar("A")
_MOST_PRODUCTS = 1 << 26
"""Products of heads and blocks made at once; rows of a long prompt are scored in several goes."""


@dataclass(frozen=True, slots=True)
class IndexRows(Generic[A]):
    """Of every row of a pass: float32 `queries` [R, H, D] and head `weights` [R, H], `keys` and `gates` [R, 1, D]."""

    queries: A
    weights: A | None
    keys: A
    gates: A | None


@dataclass(frozen=True, slots=True)
class Choice(Generic[A]):
    """How rows of one lane's window choose: at most `count` blocks of `ratio` keys.

    `blocks(rows, path)` marks, in booleans [R, blocks], what rows of a path read; each must see more than `count`.
    """

    ratio: int
    count: int
    blocks: Callable[[Sequence[int], Path], A]


class IndexerBlock(Generic[A]):
    """Projections of an indexer, and its part of a lane's state: raw keys, gates where it has them, pooled keys."""

    def __init__(self, assembly: Assembly[A], plan: BlockIndexer, path: str) -> None:
        if plan.pooling == "gated" and plan.rope is not None:
            raise RefusedError(f"The MLX backend has no gated index keys that turn yet ({path}); update TensorFold.")
        self._ops, self._plan = assembly.ops, plan
        self._queries = LinearBlock(assembly, (f"{path}.q",))
        self._names = ["k"] + ["head_weights"] * plan.head_weights + ["gate"] * (plan.pooling == "gated")
        self._project = LinearBlock(assembly, tuple(f"{path}.{name}" for name in self._names))
        self._q_norm = norm_block(assembly, plan.q_norm, f"{path}.q_norm")
        self._k_norm = norm_block(assembly, plan.k_norm, f"{path}.k_norm")
        self._rope = None if plan.rope is None else RopeBlock(assembly.ops, plan.rope)
        self._offsets: Any = None
        if plan.pooling == "gated":
            self._offsets = assembly.ops.float32(assembly.weights.floats(f"{path}.offsets")[:, None])

    def state(self, capacity: int) -> tuple[PastRows[A], ...]:
        """Empty state, one part for each entry of the op's state."""
        plan, shape = self._plan, (1, self._plan.head_dim)
        each = 2 if plan.pooling == "gated" else 1
        made = [PastRows(self._ops, shape, capacity) for _ in range(each)]
        return (*made, PastRows(self._ops, shape, capacity, plan.ratio))

    def project(self, rows: A, asking: A, context: RowContext[A]) -> IndexRows[A]:
        """What every row adds to the index and asks of it; `asking` is what the plan's queries read."""
        ops, plan = self._ops, self._plan
        made = dict(zip(self._names, self._project.split(rows), strict=True))
        keys = ops.heads(made["k"], 1)
        if plan.pooling == "gated" and self._k_norm is not None:
            keys = self._k_norm(keys)
        queries = ops.heads(self._queries(asking), plan.heads)
        if self._q_norm is not None:
            queries = self._q_norm(queries)
        if self._rope is not None:
            queries = self._rope(queries, context)
        weights = ops.wide(made["head_weights"]) if plan.head_weights else None
        gates = ops.heads(made["gate"], 1) if plan.pooling == "gated" else None
        return IndexRows(ops.wide(queries), weights, keys, gates)

    def enter(self, made: IndexRows[A], state: Sequence[PastRows[A]], segment: Segment[A]) -> Choice[A]:
        """Put a lane's rows into its index, provisionally; the choice is among the blocks that then exist."""
        ops, plan, layout = self._ops, self._plan, segment.layout
        span = (segment.start, segment.stop)
        *tokens, pooled = state
        for part, rows in zip(tokens, (made.keys, made.gates), strict=False):
            assert rows is not None
            part.put(ops.span(rows, *span), layout)
        ending = [row for row in range(len(layout)) if (int(layout.positions[row]) + 1) % plan.ratio == 0]
        if ending:
            pooled.put(self._pooled(tokens, layout, ending), layout, {row: at for at, row in enumerate(ending)})
        else:
            pooled.put(ops.span(ops.span(made.keys, *span), 0, 0), layout, {})
        queries = ops.span(made.queries, *span)
        weights = None if made.weights is None else ops.span(made.weights, *span)
        count = plan.budget // plan.ratio

        def blocks(rows: Sequence[int], path: Path) -> A:
            return self._marked(queries, weights, pooled.along(path), layout, rows)

        return Choice(plan.ratio, count, blocks)

    def _marked(self, queries: A, weights: A | None, keys: Sequence[A], layout: Layout, rows: Sequence[int]) -> A:
        """Marks of some rows, a bounded number of them at once."""
        ops, plan = self._ops, self._plan
        held = sum(part.shape[1] for part in keys)  # type: ignore[attr-defined]
        step = max(1, _MOST_PRODUCTS // (plan.heads * held))
        made: list[A] = []
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            weighed = None if weights is None else ops.pick(weights, some)
            scores: Any = ops.block_scores(ops.pick(queries, some), keys, weighed)
            complete = (layout.positions[list(some)] + 1) // plan.ratio
            made.append(best_blocks(ops.xp, scores * plan.scale, complete, plan.budget // plan.ratio))
        return ops.join(made)

    def _pooled(self, tokens: Sequence[PastRows[A]], layout: Layout, ending: Sequence[int]) -> A:
        """The keys [n, 1, D] of the blocks whose last tokens are these rows."""
        ops, plan = self._ops, self._plan
        index = np.asarray([layout.past(row, plan.ratio) for row in ending], np.int64)
        keys, *gates = (ops.wide(part.reach(index)) for part in tokens)
        if plan.pooling == "gated":
            return ops.narrow(_softly(ops, keys, gates[0], self._offsets))
        pooled = ops.narrow(_total(keys) * (1.0 / plan.ratio))
        if self._k_norm is not None:
            pooled = self._k_norm(pooled)
        if self._rope is not None:
            first = layout.positions[list(ending)] + 1 - plan.ratio
            pooled = self._rope(pooled, _standing_at(first))
        return pooled


def _softly(ops: RowOps[A], keys: Any, gates: Any, offsets: Any) -> Any:
    """Sums [n, 1, D] of keys [n, ratio, 1, D], each channel weighed by a softmax over a block of gates + offsets."""
    logits = gates + offsets
    powers = ops.xp.exp(logits - logits.max(axis=1, keepdims=True))
    return _total(powers / _total(powers)[:, None] * keys)


def _total(parts: Any) -> Any:
    """The sum over the second axis, first to last."""
    total = parts[:, 0]
    for place in range(1, parts.shape[1]):
        total = total + parts[:, place]
    return total


def _standing_at(positions: NDArray[np.int64]) -> RowContext[Any]:
    """Rows that are only places."""
    return RowContext(np.zeros_like(positions), positions, ())
