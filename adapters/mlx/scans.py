"""Runs a recurrence over the rows of a window, one after another: the arithmetic that every other form must equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tensorfold.adapters.mlx.rows import Step

A = TypeVar("A")


def run_rows(
    step: Step, inputs: Sequence[A], start: A, parents: Sequence[int], stack: Callable[[list[A]], A]
) -> tuple[A, A]:
    """Outputs of all rows stacked, and the state after the last row; see `RowOps.scan`.

    States of a chain are let go as they are passed, since those of a long prompt would not fit; a tree keeps its own.
    """
    chain = all(parent == row - 1 for row, parent in enumerate(parents))
    after: list[A] = []
    outputs = []
    state = start
    for row, parent in enumerate(parents):
        before = state if chain else start if parent < 0 else after[parent]
        state, out = step(before, tuple(part[row] for part in inputs))  # type: ignore[index]
        outputs.append(out)
        if not chain:
            after.append(state)
    return stack(outputs), state
