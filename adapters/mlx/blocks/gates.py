"""Activations and the gates built on them, elementwise and in the rows' dtype."""

from __future__ import annotations

import math
from typing import Any, TypeVar

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.domain.families.ops import Activation

A = TypeVar("A")
_TANH = math.sqrt(2.0 / math.pi)


def activated(ops: RowOps[A], rows: A, activation: Activation | None) -> A:
    """act(rows): silu, gelu's tanh form, or relu squared; rows themselves for None."""
    x: Any = rows
    if activation is None:
        return rows
    if activation == "relu2":
        positive = ops.xp.maximum(x, 0.0)
        made: A = positive * positive
        return made
    if activation == "silu":
        return ops.gated_silu(rows, ops.xp.ones_like(x))
    wide: Any = ops.wide(rows)
    inner = _TANH * (wide + 0.044715 * wide * wide * wide)
    return ops.narrow(0.5 * wide * (1.0 + ops.xp.tanh(inner)))


def gated(ops: RowOps[A], gate: A, up: A, activation: Activation, limit: float = 0.0) -> A:
    """act(gate) * up; with a limit L the gate is cut above L and `up` to [-L, L] first."""
    xp: Any = ops.xp
    if limit:
        gate, up = xp.minimum(gate, limit), xp.maximum(xp.minimum(up, limit), -limit)
    if activation == "silu":
        return ops.gated_silu(gate, up)
    made: A = activated(ops, gate, activation) * up  # type: ignore[operator]
    return made
