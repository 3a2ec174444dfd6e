"""Norms of rows: RMS over the last axis or over equal parts of it, and the LayerNorm of an indexer's keys."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tensorfold.adapters.mlx.assembly import Assembly
from tensorfold.domain.families.ops import Norm

A = TypeVar("A")


class NormBlock(Generic[A]):
    """Norms the last axis of rows [R, K] or heads [R, H, K]."""

    def __init__(self, assembly: Assembly[A], plan: Norm, path: str) -> None:
        self._ops, self._plan = assembly.ops, plan
        values = assembly.weights.floats(path) if plan.weight else None
        bias = assembly.weights.bias(path) if plan.layer else None
        self._weight = None if values is None else assembly.ops.constant(values)
        self._bias = None if bias is None else assembly.ops.constant(bias)

    def __call__(self, rows: A) -> A:
        """Normed rows, same shape."""
        plan = self._plan
        if plan.layer:
            return self._layer_norm(rows)
        return self._ops.norm(rows, self._weight, plan.eps) if plan.groups == 1 else self._in_groups(rows)

    def _in_groups(self, rows: Any) -> A:
        made: Any = self._ops.norm(rows.reshape(*rows.shape[:-1], self._plan.groups, -1), None, self._plan.eps)
        normed: A = made.reshape(rows.shape) if self._weight is None else made.reshape(rows.shape) * self._weight
        return normed

    def _layer_norm(self, rows: A) -> A:
        xp: Any = self._ops.xp
        wide: Any = self._ops.wide(rows)
        less = wide - xp.mean(wide, axis=-1, keepdims=True)
        made = less / xp.sqrt(xp.mean(less * less, axis=-1, keepdims=True) + self._plan.eps)
        if self._weight is not None:
            made = made * self._ops.wide(self._weight)
        if self._bias is not None:
            made = made + self._ops.wide(self._bias)
        return self._ops.narrow(made)


def norm_block(assembly: Assembly[A], plan: Norm | None, path: str) -> NormBlock[A] | None:
    """The block of a norm that may be absent."""
    return None if plan is None else NormBlock(assembly, plan, path)
