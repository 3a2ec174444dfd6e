"""What a kernel is asked: cases of rows that stand alone, and of windows whose rows follow one another.

A `RowCase` launches any of its rows together; a `WindowCase` steps from a state. The checks compare values with
float64, and bits with the same row in other company: a row's neighbours, its place and the row count may move nothing.
They return how many rows were compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tests.emulator.kernel import emulated
from tests.emulator.orders import Order

Floats = NDArray[np.float64]
Arrays = Sequence[mx.array]
COUNTS = (1, 2, 3, 4, 8, 16, 17, 31, 32, 64, 128)
QUICK_COUNTS = (1, 3, 17)


@dataclass(frozen=True)
class RowCase:
    """`run` launches these rows and gives outputs [len(rows), ...]; `expected` gives float64 for all `rows`.

    `tolerance` is relative to the largest expected value. Whole numbers must be equal.
    """

    name: str
    rows: int
    run: Callable[[list[int]], Arrays]
    expected: Callable[[], Sequence[NDArray[Any]]]
    tolerance: float = 1e-5


@dataclass(frozen=True)
class WindowCase:
    """`step(state, rows, parents)` launches a window of these rows, and gives outputs and what `keep(path)` leaves.

    `expected(path)` gives float64 outputs of the path's last row after the path was stepped from `start`.
    """

    name: str
    rows: int
    start: Callable[[], Any]
    step: Callable[[Any, list[int], list[int]], tuple[Arrays, Callable[[list[int]], Any]]]
    expected: Callable[[list[int]], Sequence[Floats]]
    tolerance: float = 1e-5


def bits(array: mx.array) -> NDArray[Any]:
    """The array's bits as whole numbers."""
    whole = {4: mx.uint32, 2: mx.uint16}[array.dtype.size]
    return np.array(array.view(whole))


def values(array: mx.array) -> NDArray[Any]:
    """The array's values, floats in float64."""
    if array.dtype in (mx.float32, mx.bfloat16, mx.float16):
        return np.array(array.astype(mx.float32)).astype(np.float64)
    return np.array(array)


def close(made: NDArray[Any], wanted: NDArray[Any], tolerance: float) -> bool:
    """Whether values agree; whole numbers exactly."""
    if not np.issubdtype(wanted.dtype, np.floating):
        return bool(np.array_equal(made, wanted))
    scale = max(1.0, float(np.abs(wanted).max()))
    return made.shape == wanted.shape and bool((np.abs(made - wanted) <= tolerance * scale).all())


def check_rows(case: RowCase, order: Order, counts: Sequence[int]) -> int:
    """Raise AssertionError where a value is wrong or a row's bits depend on its company."""
    with emulated(order):
        everyone = list(range(case.rows))
        together = case.run(everyone)
        for made, wanted in zip(together, case.expected(), strict=True):
            assert close(values(made), wanted, case.tolerance), f"{case.name}: a value is wrong"
        whole = [bits(one) for one in together]
        mixed = [int(i) for i in np.random.default_rng(1).permutation(case.rows)]
        companies = [everyone[:count] for count in counts if count <= case.rows]
        companies += [mixed, *([row] for row in mixed[:3])]
        for company in companies:
            for made, reference in zip(case.run(company), whole, strict=True):
                assert np.array_equal(bits(made), reference[company]), f"{case.name}: bits differ among {len(company)}"
    return case.rows + sum(len(company) for company in companies)


def check_window(case: WindowCase, order: Order, parents: list[int]) -> int:
    """The same for a window: each row equals the last of its path stepped row by row, and keeping a path goes on so."""
    with emulated(order):
        rows = list(range(len(parents)))
        together, keep = case.step(case.start(), rows, parents)
        whole = [bits(one) for one in together]
        for row in rows:
            path = path_of(parents, row)
            for made, wanted in zip(together, case.expected(path), strict=True):
                assert close(values(made[row]), wanted, case.tolerance), f"{case.name}: a value of row {row} is wrong"
            state = case.start()
            for one in path:
                alone, advance = case.step(state, [one], [-1])
                state = advance([0])
            for lone, reference in zip(alone, whole, strict=True):
                assert np.array_equal(bits(lone)[0], reference[row]), f"{case.name}: bits of row {row} differ"
            after, _ = case.step(keep(path), [case.rows - 1], [-1])
            serial, _ = case.step(state, [case.rows - 1], [-1])
            for one_way, other in zip(after, serial, strict=True):
                assert np.array_equal(bits(one_way), bits(other)), f"{case.name}: bits after keeping {path} differ"
    return 2 * len(rows)


def path_of(parents: Sequence[int], row: int) -> list[int]:
    """Rows from the root to `row`."""
    path = [row]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


CHAIN = [-1, 0, 1, 2]
TREE = [-1, 0, 0, 1, 2, 2, 4]


def chain(rows: int) -> list[int]:
    """A chain of this many rows."""
    return [row - 1 for row in range(rows)]
