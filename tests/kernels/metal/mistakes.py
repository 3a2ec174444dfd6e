"""Faults planted into real kernels: each barrier taken away, a simd operation in a branch, an output left out."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

import mlx.core as mx

from tensorfold.kernels.metal import affine, conv, dense, norms, router, selection
from tensorfold.kernels.metal.launch import MetalKernel
from tests.emulator.errors import EmulatorError
from tests.emulator.orders import ORDERS, Order
from tests.kernels.metal import products, rowwise, windowed
from tests.kernels.metal.case import TREE, RowCase, WindowCase, check_rows, check_window

BARRIER = re.compile(r"threadgroup_barrier\([^)]*\);")


@dataclass(frozen=True)
class Mistake:
    """One fault: `change` makes a wrong body of `module.name`, and `case` runs that kernel."""

    about: str
    module: ModuleType
    name: str
    change: Callable[[str], str]
    case: Callable[[], RowCase | WindowCase]
    rows: int = 5


@contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """The kernel with its fault, inside the block."""
    sound: MetalKernel = getattr(mistake.module, mistake.name)
    body = mistake.change(sound.body)
    assert body != sound.body, f"{mistake.about}: the fault found no place"
    setattr(mistake.module, mistake.name, dataclasses.replace(sound, body=body))
    try:
        yield
    finally:
        setattr(mistake.module, mistake.name, sound)


def noticed(mistake: Mistake) -> str:
    """What the checks say about it under the first order that shows it, or nothing."""
    case = mistake.case()
    with planted(mistake):
        for order in ORDERS:
            try:
                _check(case, order)
            except (AssertionError, EmulatorError) as error:
                return str(error)
    return ""


def _check(case: RowCase | WindowCase, order: Order) -> None:
    if isinstance(case, RowCase):
        check_rows(case, order, (1, case.rows))
    else:
        check_window(case, order, TREE)


def _without_barrier(index: int) -> Callable[[str], str]:
    def change(body: str) -> str:
        found = list(BARRIER.finditer(body))[index]
        return body[: found.start()] + body[found.end() :]

    return change


def barriers() -> Iterator[Mistake]:
    """Every barrier of every kernel, one at a time."""
    homes: tuple[tuple[ModuleType, str, Callable[[int], RowCase]], ...] = (
        # The barrier behind the tree is needed where there is no tree: with one slice.
        (affine, "MATRIX", lambda at: products.affine_case("matrix", 4, 32, rows=5, inputs=32 if at else 512)),
        (dense, "MATRIX", lambda at: products.dense_case("matrix", mx.float32, 5, inputs=32 if at else 512)),
        (norms, "NORM", lambda at: next(rowwise.norm_cases(mx.float32, 3, 320, 1))),
        (router, "ROUTE", lambda at: next(rowwise.router_cases(5))),
        (selection, "BEST", lambda at: rowwise.candidate_case(3, 1500, 28, mx.float32)),
        (selection, "LOG_SUM", lambda at: rowwise.candidate_case(3, 1500, 28, mx.float32)),
    )
    for module, name, case in homes:
        kernel: MetalKernel = getattr(module, name)
        for at in range(len(BARRIER.findall(kernel.body))):
            about, build = f"{kernel.name} without barrier {at}", functools.partial(case, at)
            yield Mistake(about, module, name, _without_barrier(at), build)


def others() -> Iterator[Mistake]:
    """Simd operations that part of a simdgroup misses, and outputs that nobody writes."""
    yield Mistake(
        "a tree over slices that half of the lanes skip",
        affine,
        "SCALAR",
        lambda body: body.replace("for (int distance", "if (slice < SLICES / 2) for (int distance"),
        lambda: products.affine_case("scalar", 4, 32, rows=3),
    )
    yield Mistake(
        "a sum that one simdgroup's lane skips",
        norms,
        "NORM",
        lambda body: body.replace(
            "squares = simd_sum(squares);", "if (thread_index != 33) squares = simd_sum(squares);"
        ),
        lambda: next(rowwise.norm_cases(mx.float32, 3, 320, 1)),
    )
    yield Mistake(
        "a channel without a result",
        conv,
        "CONV",
        lambda body: body.replace("float sum = 0.0f;", "if (channel == 7) return; float sum = 0.0f;"),
        lambda: windowed.conv_case(4, 1, False),
    )
    yield Mistake(
        "a last output without a result",
        dense,
        "SCALAR",
        lambda body: body.replace("if (first + o < N)", "if (first + o < N - 1)"),
        lambda: products.dense_case("scalar", mx.float32, 3),
    )
    yield Mistake(
        "a result past the last row",
        affine,
        "MATRIX",
        lambda body: body.replace("if (row < rows && n < N)", "if (n < N)"),
        lambda: products.affine_case("matrix", 4, 32, rows=5),
    )
    yield Mistake(
        "a rounding that depends on the row count",
        affine,
        "SCALAR",
        lambda body: body.replace(
            "fma(bias, totals[r], sums[o][r])",
            "x_shape[0] > 1 ? bias * totals[r] + sums[o][r] : fma(bias, totals[r], sums[o][r])",
        ),
        lambda: products.affine_case("scalar", 4, 32, rows=4),
    )
