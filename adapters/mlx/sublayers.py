"""Sublayers: how an op is put around the residual, with its norms, beside other branches, and with a learnt scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly, Block
from tensorfold.adapters.mlx.blocks.norm import norm_block
from tensorfold.adapters.mlx.blocks.residual import residual_block
from tensorfold.adapters.mlx.builders import build
from tensorfold.adapters.mlx.row_context import RowContext
from tensorfold.domain.families.plans import Branch, Layer, Parallel, Sublayer

A = TypeVar("A")


class SublayerBlock(Generic[A]):
    """residual(post_norm(op(pre_norm(x)))), then the whole stream times a scalar. `op` may be replaced by a test."""

    def __init__(self, assembly: Assembly[A], plan: Sublayer, path: str) -> None:
        weights = assembly.weights
        self._ops = assembly.ops
        self._residual = residual_block(assembly, plan.residual, f"{path}.residual")
        self._pre_norm = norm_block(assembly, plan.pre_norm, f"{path}.pre_norm")
        self._post_norm = norm_block(assembly, plan.post_norm, f"{path}.post_norm")
        self.op: Block[A]
        if isinstance(plan.op, Parallel):
            self.op = ParallelBlock(assembly, plan.op.branches, path)
        else:
            self.op = build(assembly, plan.op, path)
        self._scale = float(weights.floats(f"{path}.scale")[0]) if plan.scale else None

    def __call__(self, stream: A, context: RowContext[A]) -> A:
        """The residual behind this sublayer."""
        rows, mix = self._residual.read(stream)
        made = self.op(rows if self._pre_norm is None else self._pre_norm(rows), context, rows)
        stream = self._residual.write(stream, made if self._post_norm is None else self._post_norm(made), mix)
        return stream if self._scale is None else self._ops.scale(stream, self._scale)


class ParallelBlock(Generic[A]):
    """Branches that read the same residual, each through its own norm; their results are added in order."""

    def __init__(self, assembly: Assembly[A], branches: Sequence[Branch], path: str) -> None:
        self._ops = assembly.ops
        self._branches = [
            (
                norm_block(assembly, branch.pre_norm, f"{path}.{branch.name}.pre_norm"),
                build(assembly, branch.op, f"{path}.{branch.name}"),
                norm_block(assembly, branch.post_norm, f"{path}.{branch.name}.post_norm"),
            )
            for branch in branches
        ]

    def __call__(self, rows: A, context: RowContext[A], residual: A) -> A:
        """The sum of the branches."""
        total: A | None = None
        for pre_norm, op, post_norm in self._branches:
            made = op(rows if pre_norm is None else pre_norm(rows), context, residual)
            made = made if post_norm is None else post_norm(made)
            total = made if total is None else self._ops.add(total, made)
        assert total is not None
        return total


def build_layers(assembly: Assembly[A], layers: Sequence[Layer], root: str) -> list[list[SublayerBlock[A]]]:
    """The sublayers of every layer, states entered in order."""
    return [
        [SublayerBlock(assembly, sublayer, f"{root}.{index}.{sublayer.name}") for sublayer in layer]
        for index, layer in enumerate(layers)
    ]
