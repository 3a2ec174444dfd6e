"""Which rows of a window follow which: parents as kernels read them.

Row r of a window continues row `parents[r]`, or the committed state where that is -1. Parents stand before their
children. Arrays have at least eight elements: MLX would put smaller ones into another address space.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

LEAST = 8


@dataclass(frozen=True, slots=True)
class Window:
    """`parents` [>= R] and `depths` [>= R] int32: a row's depth is the number of window rows before it on its path.

    `ancestors` [R, longest] int32: row r's path from its root to itself, then -1.
    """

    rows: int
    longest: int
    parents: mx.array
    depths: mx.array
    ancestors: mx.array


def window(parents: Sequence[int]) -> Window:
    """The window of these parents. Raises ValueError where a parent does not stand before its row.

    Every layer of a launch asks for the same one, so the last few are remembered.
    """
    return _window(tuple(parents))


@functools.lru_cache(maxsize=64)
def _window(parents: tuple[int, ...]) -> Window:
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        if not -1 <= parent < row:
            raise ValueError(f"row {row} of a window has parent {parent}; a parent is an earlier row or -1")
        paths.append([*(paths[parent] if parent >= 0 else ()), row])
    rows, longest = len(paths), max(len(path) for path in paths)
    ancestors = np.full((max(rows, parts_of(LEAST, longest)), longest), -1, np.int32)
    for row, path in enumerate(paths):
        ancestors[row, : len(path)] = path
    return Window(
        rows,
        longest,
        mx.array(_padded(list(parents))),
        mx.array(_padded([len(path) - 1 for path in paths])),
        mx.array(ancestors),
    )


def parts_of(count: int, size: int) -> int:
    """How many rows of `size` hold `count` elements."""
    return -(-count // size)


def _padded(values: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    made = np.zeros(max(LEAST, len(values)), np.int32)
    made[: len(values)] = values
    return made


def padded(values: Sequence[int]) -> mx.array:
    """Whole numbers as int32, with zeros behind up to eight."""
    return mx.array(_padded(values))
