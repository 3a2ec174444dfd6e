"""Compiling while a model loads: what is made at its end, and how a load is refused where a kernel cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tensorfold.adapters.cuda.loader import compiling
from tensorfold.adapters.cuda.products import Products
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.kernels.cuda.compiler import CompilerError, CompilerMissingError
from tensorfold.kernels.cuda.driver import DriverError
from tensorfold.kernels.cuda.row_tilings import Matrix
from tests.adapters.cuda.host_launches import HostLaunches


class Kernels:
    """Stands in for kernels of a kind: `fault` is what making them raises."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault, self.calls = fault, list[str]()

    def make_expected(self) -> None:
        self.calls.append("made")
        if self.fault is not None:
            raise self.fault

    def close(self) -> None:
        self.calls.append("closed")


def run(kernels: Sequence[Kernels], inside: Callable[[], None] = lambda: None) -> list[str]:
    lines: list[str] = []
    with compiling(kernels, lines.append):
        inside()
    return lines


def test_what_was_expected_is_made_when_the_weights_are_read() -> None:
    kernels = Kernels(), Kernels()
    assert run(kernels) == [] and [each.calls for each in kernels] == [["made", "closed"]] * 2


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (
            CompilerError("NVRTC 13.0 refuses wide_rows.cu for sm_90a (NT=4)", "line 1\nline 2"),
            "refuses wide_rows.cu for",
        ),
        (
            CompilerMissingError("no NVRTC library is installed; it comes with x"),
            "cannot compile its kernels: no NVRTC",
        ),
        (
            DriverError("loading wide_rows: CUDA_ERROR_NO_BINARY_FOR_GPU (209)"),
            "driver does not take a compiled kernel",
        ),
    ],
)
def test_a_kernel_that_cannot_be_had_refuses_the_load_in_one_sentence(fault: Exception, says: str) -> None:
    kernels = Kernels(), Kernels(fault), Kernels()
    lines: list[str] = []
    with pytest.raises(RefusedError) as refused, compiling(kernels, lines.append):
        pass
    message = refused.value.message
    assert says in message and "\n" not in message and message.endswith(".")
    assert [each.calls for each in kernels] == [["made", "closed"], ["made", "closed"], ["closed"]]
    assert lines == (["line 1", "line 2"] if isinstance(fault, CompilerError) else [])


def test_a_load_that_fails_for_another_reason_waits_for_nothing() -> None:
    kernels = Kernels(), Kernels()

    def refuse() -> None:
        raise RefusedError("no such layer")

    with pytest.raises(RefusedError, match="no such layer"):
        run(kernels, refuse)
    assert [each.calls for each in kernels] == [["closed"]] * 2


def test_row_counts_are_expected_in_launches_as_large_as_there_are() -> None:
    launches = HostLaunches()
    products = Products(None, launches, "cpu")
    products.launched_with((1, 5, 128, 136, 300))
    up, down = Matrix(192, 128, 4), Matrix(128, 192, 4)
    products.expect(up, False)
    assert launches.expected == [(up, rows, False) for rows in (1, 5, 8, 44, 128)]
    launches.expected.clear()
    products.beside(None).expect_experts(up, down, 8)
    sizes = (1, 5, 8, 12, 32)
    assert [entry[1:3] for entry in launches.expected if entry[0] == up] == [(rows, 8 * rows) for rows in sizes]
    assert [entry[1:] for entry in launches.expected if entry[0] == down] == [
        (8 * rows, 8 * rows, True) for rows in sizes
    ]


def test_a_matrix_that_no_launch_takes_is_refused_in_one_sentence() -> None:
    class Full(HostLaunches):
        def expect_rows(self, matrix: Matrix, rows: int, wide: bool = False) -> None:
            raise ValueError("1 rows do not fit 9 bytes of shared memory")

    products = Products(None, Full(), "cpu")
    products.launched_with((1,))
    with pytest.raises(RefusedError, match="cannot multiply rows with a matrix of this model: 1 rows do not fit 9 byt"):
        products.expect(Matrix(16, 64, 4), False)
