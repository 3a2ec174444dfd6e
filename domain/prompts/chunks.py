"""In which spans a prompt is absorbed.

Chunk boundaries can move a prompt row's bits, so they follow from the prompt alone. Pure arithmetic over positions:
spans are half-open, cover every position once and stand in order.
"""

from __future__ import annotations

from collections.abc import Iterator


def plan_chunks(length: int, chunk: int) -> tuple[tuple[int, int], ...]:
    """A plain grid: spans of `chunk` positions over 0 .. `length`, the last one possibly shorter; () for length 0.

    A longer prompt with the same beginning has the same full spans. Raises ValueError when `length` is below 0 or
    `chunk` below 1.
    """
    if length < 0:
        raise ValueError(f"a prompt cannot have {length} positions")
    return tuple(_grid(0, length, chunk))


def slices(span: tuple[int, int], slice_rows: int) -> Iterator[tuple[int, int]]:
    """`span` in pieces of at most `slice_rows` positions, in order; whole when `slice_rows` is 0.

    For a model whose bits do not depend on how a planned chunk is cut, so that rounds may run between the pieces.
    Raises ValueError when `slice_rows` is below 0.
    """
    start, stop = span
    return _grid(start, stop, slice_rows or max(stop - start, 1))


def _grid(start: int, stop: int, step: int) -> Iterator[tuple[int, int]]:
    if step < 1:
        raise ValueError(f"positions cannot be cut into pieces of {step}")
    return ((at, min(at + step, stop)) for at in range(start, stop, step))
