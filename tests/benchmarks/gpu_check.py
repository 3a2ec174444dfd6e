"""Rows of the row kernels on the card: near float64; bit for bit the same alone, in company, moved and in a graph.

One row, a few and many are different tilings, and on compute capability 9.0 three kernels and two kinds of matrix
instructions: that these make the same bits is an observation, and this is where it is made. Results are compared in
float32, before anything is rounded away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.kernels.cuda.affine_pack import pack_affine, pack_bf16
from tensorfold.kernels.cuda.affine_rows import RowKernels
from tensorfold.kernels.cuda.row_tilings import Matrix
from tensorfold.kernels.reference.affine import unpack
from tests.benchmarks.gpu_device import captured, dequantized, packed, random_parts, row_kernels, stream

COUNTS = (2, 3, 4, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 64, 65, 128)
SHAPES = (
    (64, 512), (48, 5120), (200, 2688), (2688, 1856), (10304, 2688), (5120, 6144), (5120, 17408), (14336, 5120),
    (16384, 2560), (8200, 4736), (200, 16960), (1200, 12288), (3840, 12288),
)  # fmt: skip
GATED = ((64, 512), (1232, 5120), (34816, 5120), (8208, 5120), (3840, 12288), (3904, 2048))
MOST_ERROR = 3e-3  # of the norm; rounding the result to bf16 alone makes 1.7e-3
MOST_GATED = 6e-3  # of results that are a product of two sums


class Product:
    """One matrix and its launches."""

    def __init__(self, kernels: RowKernels, matrix: Matrix, weights: torch.Tensor) -> None:
        self.kernels, self.matrix, self.weights = kernels, matrix, weights

    def __call__(self, rows: torch.Tensor, wide: bool = True) -> torch.Tensor:
        """Rows [M, K] times the matrix, into memory that held NaN before; float32 results, or bf16."""
        kind = torch.float32 if wide else torch.bfloat16
        y = torch.full((len(rows), self.matrix.results), float("nan"), device="cuda", dtype=kind)
        launch = self.kernels.rows(self.matrix, len(rows), wide)
        launch(self.weights.data_ptr(), rows.contiguous().data_ptr(), y.data_ptr(), stream(), False)
        torch.cuda.synchronize()
        return y

    def replayed(self, rows: torch.Tensor) -> torch.Tensor:
        """The same by a graph in which three launches follow each other early."""
        y = torch.zeros((len(rows), self.matrix.results), device="cuda", dtype=torch.float32)
        launch = self.kernels.rows(self.matrix, len(rows), True)

        def queue() -> None:
            for _ in range(3):
                launch(self.weights.data_ptr(), rows.data_ptr(), y.data_ptr(), stream(), True)

        graph = captured(queue)
        y.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        return y


def made(matrix: Matrix) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """Packed weights, the matrix in float64, and whether the packing equals its oracle (asked of small matrices)."""
    if matrix.bits == 16:
        plain = torch.randn(matrix.outputs, matrix.inputs, device="cuda").bfloat16()
        words = pack_bf16(plain.cpu().view(torch.int16).numpy().view(np.uint16))
        return torch.from_numpy(words.view(np.int32)).cuda(), plain.double(), True
    parts = random_parts(matrix, matrix.outputs + matrix.bits)
    weights = packed(matrix, parts)
    same = True
    if matrix.outputs <= 2688:
        codes = unpack(parts[0].cpu().numpy().view(np.uint32), matrix.bits)
        scales, biases = (part.cpu().view(torch.int16).numpy().view(np.uint16) for part in parts[1:])
        oracle = pack_affine(codes, scales, biases, matrix.bits).reshape(-1)
        same = bool(np.array_equal(oracle, weights.cpu().numpy().view(np.uint32).reshape(-1)))
    return weights, dequantized(matrix, parts), same


def faults(product: Product, exact: torch.Tensor) -> tuple[float, list[str]]:
    """The error against float64 and every way in which rows were not the same."""
    x = torch.randn(128, product.matrix.inputs, device="cuda").bfloat16()
    alone = torch.cat([product(x[i : i + 1]) for i in range(128)])
    true = exact_rows(product.matrix, x, exact)
    error = float(((alone.bfloat16().double() - true).norm() / true.norm()).item())
    wrong = [f"{count} rows" for count in COUNTS if not torch.equal(product(x[:count]), alone[:count])]
    # What a gate opens is rounded before it is opened, so gated results are other numbers there.
    gated = product.matrix.gated
    rounded = torch.cat([product(x[i : i + 1], False) for i in range(64)]) if gated else alone.bfloat16()
    wrong += [f"{n} rounded rows" for n in (1, 8, 16, 32, 64) if not torch.equal(product(x[:n], False), rounded[:n])]
    order = torch.randperm(128, device="cuda")
    for count in (5, 16, 40):
        if not torch.equal(product(x[order[:count]]), alone[order[:count]]):
            wrong.append(f"{count} moved rows")
    for count in (24, 64):
        broken = x[:count].clone()
        broken[1::2] = float("nan")
        if not torch.equal(product(broken)[::2], alone[:count:2]):
            wrong.append(f"{count} beside NaN")
    wrong += [f"graph of {n}" for n in (1, 8, 16, 32, 33, 64) if not torch.equal(product.replayed(x[:n]), alone[:n])]
    return error, wrong


def exact_rows(matrix: Matrix, x: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """Results of rows in float64."""
    sums = x.double() @ exact.T
    if not matrix.gated:
        return sums
    gate, opened = sums.view(len(x), -1, 2, 4).unbind(2)
    return (torch.nn.functional.silu(gate) * opened).reshape(len(x), -1)


def matrices() -> Iterator[Matrix]:
    """Every width of code and shape, and gates."""
    for bits in (4, 5, 6, 8, 16):
        for shape in SHAPES if bits == 4 else SHAPES[:6]:
            yield Matrix(*shape, bits)
        for shape in GATED if bits == 4 else GATED[:2]:
            yield Matrix(*shape, bits, gated=True)


def check(folder: Path) -> tuple[list[dict[str, object]], int]:
    """Every width of code and shape; the second number counts those with a fault."""
    kernels = row_kernels(folder)
    found: list[dict[str, object]] = []
    bad = 0
    for matrix in matrices():
        weights, exact, same = made(matrix)
        error, wrong = faults(Product(kernels, matrix, weights), exact)
        if not same:
            wrong.append("packing")
        bad += bool(wrong) or not error < (MOST_GATED if matrix.gated else MOST_ERROR)
        found.append({**asdict(matrix), "error": error, "wrong": wrong})
        what = f"{matrix.bits:2} bits {matrix.outputs:6} x {matrix.inputs:5}{' gated' * matrix.gated}"
        print(f"{what}  error {error:.2e}  {wrong or 'rows equal'}", flush=True)
    return found, bad
