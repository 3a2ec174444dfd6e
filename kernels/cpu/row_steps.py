"""Which row counts a library product may be called with so that a row's bits stay the same.

A BLAS picks other loops for other row counts, so equality is measured, not assumed: sizes whose rows agree bit for bit
form a class, and a kernel uses the sizes of one class alone, padding up to the next. Knows no weight format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]
SIZES = (4, 8, 16)


def exact_steps(call: Callable[[Rows], Rows], samples: Rows, sizes: Sequence[int] = SIZES) -> tuple[int, ...]:
    """Sizes, ascending, between which each row of `call` keeps its bits whatever its slot and its neighbours.

    `call` maps float32 [S, K] to [S, N] for every S in `sizes`; `samples` are at least max(sizes) rows [.., K]. Of the
    classes found the one that reaches the largest size is taken. Empty when no size keeps its own rows apart.
    """
    classes: list[tuple[list[int], Rows]] = []
    for size in sorted(sizes):
        made = _settled(call, samples[:size])
        if made is None:
            continue
        for members, known in classes:
            if np.array_equal(known, made[: len(known)]):
                members.append(size)
                break
        else:
            classes.append(([size], made))
    best = max((members for members, _ in classes), key=lambda members: members[-1], default=[])
    return tuple(best)


def row_calls(rows: int, steps: Sequence[int]) -> list[tuple[int, int, int]]:
    """Cut `rows` rows into calls (start, stop, size), `size` of `steps` and at least stop - start.

    Without steps every row is called alone, in the first slot of the smallest size: always the same arithmetic.
    """
    if not steps:
        return [(at, at + 1, SIZES[0]) for at in range(rows)]
    calls = []
    at = 0
    while at < rows:
        size = next((s for s in steps if s >= rows - at), steps[-1])
        calls.append((at, min(at + size, rows), size))
        at += size
    return calls


def padded(rows: Rows, size: int) -> Rows:
    """`rows` [R, K] with zero rows behind, contiguous [size, K]."""
    if len(rows) == size:
        return np.ascontiguousarray(rows)
    full = np.zeros((size, rows.shape[1]), np.float32)
    full[: len(rows)] = rows
    return full


def _settled(call: Callable[[Rows], Rows], rows: Rows) -> Rows | None:
    """The rows' results when slots and neighbours do not matter at this size, else None."""
    made = call(rows)
    turned = call(np.ascontiguousarray(rows[::-1]))
    alone = np.zeros_like(rows)
    middle = len(rows) // 2
    alone[middle] = rows[0]
    same = np.array_equal(turned[::-1], made) and np.array_equal(call(alone)[middle], made[0])
    return made if same else None
