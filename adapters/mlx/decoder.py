"""A plan and its weights become a running decoder: layers of blocks over a residual.

Knows no lane, ticket or request. Ops without a builder are refused by name before any of their weights is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.blocks.attention import AttentionBlock
from tensorfold.adapters.mlx.blocks.embedding import EmbeddingBlock
from tensorfold.adapters.mlx.blocks.head import HeadBlock
from tensorfold.adapters.mlx.blocks.norm import NormBlock, norm_block
from tensorfold.adapters.mlx.blocks.swiglu import SwigluBlock
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.adapters.mlx.rows import KeyValues, RowOps
from tensorfold.adapters.mlx.weights import WeightReader
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.ops import Attention, SwiGLU
from tensorfold.domain.families.plans import DecoderPlan, Plain, Sublayer

A = TypeVar("A")


@dataclass(slots=True)
class SublayerBlock(Generic[A]):
    """residual + post_norm(op(pre_norm(residual))). `op` may be replaced by a test."""

    ops: RowOps[A]
    op: Callable[[A, RowContext[A]], A]
    pre_norm: NormBlock[A] | None
    post_norm: NormBlock[A] | None

    def __call__(self, rows: A, context: RowContext[A]) -> A:
        """The residual behind this sublayer."""
        made = self.op(rows if self.pre_norm is None else self.pre_norm(rows), context)
        return self.ops.add(rows, made if self.post_norm is None else self.post_norm(made))


class Decoder(Generic[A]):
    """Rows through all layers, and logits of some of them."""

    def __init__(self, ops: RowOps[A], plan: DecoderPlan, weights: WeightReader) -> None:
        self.ops, self.plan = ops, plan
        self._attentions: list[AttentionBlock[A]] = []
        _refuse_unbuilt(plan)
        table = weights.matrix("embedding")
        self.embedding = EmbeddingBlock(ops, plan.embedding, table)
        self.head = HeadBlock(ops, plan.head, table if plan.head.tied else weights.matrix("head"))
        self.readout = norm_block(ops, plan.readout.norm, "readout.norm", weights)
        self.sublayers = [
            self._sublayer(sublayer, f"layers.{index}.{sublayer.name}", weights)
            for index, layer in enumerate(plan.layers)
            for sublayer in layer
        ]

    def _sublayer(self, plan: Sublayer, path: str, weights: WeightReader) -> SublayerBlock[A]:
        op: Callable[[A, RowContext[A]], A]
        if isinstance(plan.op, Attention):
            op = attention = AttentionBlock(self.ops, plan.op, path, len(self._attentions), weights)
            self._attentions.append(attention)
        else:
            assert isinstance(plan.op, SwiGLU)
            op = SwigluBlock(self.ops, plan.op, path, weights)
        pre, post = (
            norm_block(self.ops, norm, f"{path}.{name}", weights)
            for name, norm in (("pre_norm", plan.pre_norm), ("post_norm", plan.post_norm))
        )
        return SublayerBlock(self.ops, op, pre, post)

    def states(self, capacity: int) -> tuple[KeyValues[A], ...]:
        """Empty state of a lane, in the order of the plan's `state_spec`."""
        return tuple(attention.state(capacity) for attention in self._attentions)

    def hidden(self, context: RowContext[A]) -> A:
        """Rows behind the last layer; every segment's state holds them provisionally."""
        rows = self.embedding(context.ids)
        for sublayer in self.sublayers:
            rows = sublayer(rows, context)
        return rows

    def logits(self, hidden: A, drawn: Sequence[int]) -> A:
        """Logits of the rows at `drawn`, on the device."""
        rows = self.ops.pick(hidden, drawn)
        return self.head(rows if self.readout is None else self.readout(rows))

    def host(self, logits: A) -> NDArray[np.float32]:
        """Wait for logits [R, V]."""
        return self.head.host(logits)


def _refuse_unbuilt(plan: DecoderPlan) -> None:
    for layer in plan.layers:
        for sublayer in layer:
            kinds = (type(sublayer.op), type(sublayer.residual))
            if not issubclass(kinds[0], Attention | SwiGLU) or kinds[1] is not Plain or sublayer.scale:
                names = " over ".join(kind.__name__ for kind in kinds)
                raise RefusedError(f"The MLX backend cannot build {names} yet, which {plan.model_type} needs.")
    if plan.readout.form != "norm":
        raise RefusedError(f"The MLX backend cannot build a {plan.readout.form} readout yet.")
