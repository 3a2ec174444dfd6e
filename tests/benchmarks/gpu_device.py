"""What every part of the GPU benchmark stands on: a device's kernels, packed random matrices, graphs and their times.

Every time is the median of replays of a captured graph over more distinct weights than the cache holds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import torch  # type: ignore[import-not-found, unused-ignore]

from tensorfold.adapters.cuda.packing import new_blocks, pack_codes
from tensorfold.kernels.cuda.affine_pack import GROUP, block_words
from tensorfold.kernels.cuda.affine_rows import RowKernels
from tensorfold.kernels.cuda.driver import current_device
from tensorfold.kernels.cuda.row_tilings import Matrix

FLUSHED = 640 << 20  # bytes of distinct weights a timed graph reads: ten times the cache
Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def silent(line: str) -> None:
    """A progress callback that says nothing."""


def row_kernels(folder: Path) -> RowKernels:
    """The row kernels of the device that torch sees; cubins are kept in `folder`."""
    torch.zeros(1, device="cuda")  # makes torch's context current
    return RowKernels(current_device(), folder, silent)


def stream() -> int:
    """The address of torch's current stream."""
    return int(torch.cuda.current_stream().cuda_stream)


def half(*shape: int) -> torch.Tensor:
    """bf16 noise [*shape] on the device."""
    return torch.randn(shape, device="cuda").bfloat16()


def ints(values: object) -> torch.Tensor:
    """int32 numbers on the device, of nested lists of their shape."""
    return torch.tensor(values, dtype=torch.int32, device="cuda")


def random_parts(matrix: Matrix, seed: int) -> Parts:
    """Words [N, K * bits / 32] and bf16 scales and biases [N, K / 64] as a checkpoint has them, on the device."""
    chance = torch.Generator("cuda").manual_seed(seed)
    words = torch.randint(
        -(2**31), 2**31, (matrix.outputs, matrix.inputs * matrix.bits // 32), device="cuda", generator=chance
    ).to(torch.int32)
    shape = (matrix.outputs, matrix.groups)
    top = 2.0**matrix.bits - 1
    scales = (torch.rand(shape, device="cuda", generator=chance) * 0.5 + 0.75) * (0.2 / top)
    scales *= torch.where(torch.rand(shape, device="cuda", generator=chance) < 0.5, -1.0, 1.0)
    biases = -scales * top * (torch.rand(shape, device="cuda", generator=chance) * 0.2 + 0.4)
    return words, scales.bfloat16(), biases.bfloat16()


def packed(matrix: Matrix, parts: Parts) -> torch.Tensor:
    """The matrix as the row kernel streams it."""
    out = new_blocks(matrix.outputs, matrix.inputs, matrix.bits, "cuda")
    pack_codes(*parts, matrix.bits, out)
    return out


def dequantized(matrix: Matrix, parts: Parts) -> torch.Tensor:
    """The matrix [N, K] in float64, bit by bit from its words."""
    words, scales, biases = parts
    bit = torch.arange(matrix.inputs, device="cuda") * matrix.bits
    wide = torch.cat([words.long() & 0xFFFFFFFF, torch.zeros_like(words[:, :1]).long()], dim=1)
    pair = wide[:, bit // 32] | wide[:, bit // 32 + 1] << 32
    codes = (pair >> (bit % 32)) & (2**matrix.bits - 1)
    scale, bias = (part.double().repeat_interleave(GROUP, dim=1) for part in (scales, biases))
    return codes.double() * scale + bias


def filled(matrix: Matrix, copies: int) -> list[torch.Tensor]:
    """`copies` packed matrices of random codes with one small scale and bias: for times, not for values."""
    words = block_words(matrix.bits)
    count = -(-matrix.outputs // 16) * matrix.groups
    made = []
    for _ in range(copies):
        blocks = torch.randint(-(2**31), 2**31 - 1, (count, words), dtype=torch.int32, device="cuda")
        blocks[:, -16:] = 0x3C003C00
        made.append(blocks)
    return made


def captured(queue: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """A graph of what `queue` launches; it has run once before."""
    queue()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        queue()
    return graph


def seconds(run: Callable[[], None], repeats: int = 7, warm: int = 2) -> float:
    """The median time of `run` on the device."""
    for _ in range(warm):
        run()
    times: list[float] = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(float(start.elapsed_time(end)) * 1e-3)
    return statistics.median(times)
