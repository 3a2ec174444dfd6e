"""Sinkhorn's iteration on small matrices, one for each row: the arithmetic that every other form must equal."""

from __future__ import annotations

from typing import TypeVar

A = TypeVar("A")


def balanced(square: A, iterations: int, eps: float) -> A:
    """Matrices [R, S, S] whose columns, then rows and columns in turn, are divided by their sums; see `RowOps`."""
    made = square / (square.sum(axis=1, keepdims=True) + eps)  # type: ignore[attr-defined]
    for _ in range(iterations - 1):
        made = made / (made.sum(axis=2, keepdims=True) + eps)
        made = made / (made.sum(axis=1, keepdims=True) + eps)
    result: A = made
    return result
