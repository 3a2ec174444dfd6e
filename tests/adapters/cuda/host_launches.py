"""The row kernel's launches on the CPU: they read packed blocks and lists by address, as the kernel does."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.cuda.affine_pack import block_words
from tensorfold.kernels.cuda.affine_rows import ExpertLaunch, Launch
from tensorfold.kernels.cuda.driver import Device
from tensorfold.kernels.cuda.row_tilings import Matrix

Floats = NDArray[np.float64]


class HostLaunches:
    """Stands in for `RowKernels`: x and y are float32; each row is multiplied alone.

    `asked` lists what was made, `expected` what was said early to be.
    """

    device = Device(132, (9, 0), 232448)

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.expected: list[tuple[Any, ...]] = []

    def expect_rows(self, matrix: Matrix, rows: int, wide: bool = False) -> None:
        self.expected.append((matrix, rows, wide))

    def expect_experts(self, matrix: Matrix, rows: int, pairs: int, wide: bool = False) -> None:
        self.expected.append((matrix, rows, pairs, wide))

    def rows(self, matrix: Matrix, rows: int, wide: bool = False) -> Launch:
        self.asked.append((matrix, rows, wide))

        def launch(weights: int, x: int, y: int, stream: int, early: bool) -> None:
            numbers = unpacked(weights, matrix)
            given = at_address(x, (rows, matrix.inputs), np.float32)
            sums = [numbers @ row for row in given.astype(np.float64)]
            made = at_address(y, (rows, matrix.results), np.float32)
            made[:] = [opened(row) for row in sums] if matrix.gated else sums

        return launch

    def experts(self, matrix: Matrix, rows: int, pairs: int, wide: bool = False) -> ExpertLaunch:
        self.asked.append((matrix, rows, pairs, wide))
        assert pairs <= 256

        def launch(stack: int, x: int, y: int, items: int, members: int, stream: int, early: bool) -> None:
            count = int(at_address(items, (1,), np.int32)[0])
            size = -(-matrix.outputs // 16) * matrix.groups * block_words(matrix.bits) * 4
            given, made = (
                at_address(x, (rows, matrix.inputs), np.float32),
                at_address(y, (pairs, matrix.outputs), np.float32),
            )
            pair = at_address(members, (256, 2), np.int32)
            for expert, first, several in at_address(items + 4, (count, 3), np.int32).tolist():
                assert 1 <= several <= 8
                numbers = unpacked(stack + expert * size, matrix)
                for row, place in pair[first : first + several].tolist():
                    made[place] = numbers @ given[row].astype(np.float64)

        return launch


def opened(sums: Floats) -> Floats:
    """silu(gate) * up [F] of sums [2 F] that are four of the gate, then four of up, and so on."""
    gate, up = sums.reshape(-1, 2, 4).swapaxes(0, 1).reshape(2, -1)
    made: Floats = gate / (1 + np.exp(-gate)) * up
    return made


def unpacked(address: int, matrix: Matrix) -> Floats:
    """A packed matrix as numbers [N, K]: the order that `affine_pack.py` states, the other way round."""
    tiles, groups, bits = -(-matrix.outputs // 16), matrix.groups, matrix.bits
    blocks = at_address(address, (tiles, groups, block_words(bits)), np.uint32)
    if bits == 16:
        words = blocks.reshape(tiles, groups, 4, 8, 4, 2, 2)  # step, r, q, pair, h
        halves = np.stack([words << 16, words & 0xFFFF0000], -1).view(np.float32)
        order = halves.transpose(0, 6, 3, 1, 4, 2, 5, 7)
        return order.reshape(tiles * 16, -1)[: matrix.outputs].astype(np.float64)
    low: NDArray[np.int64] = _fields(blocks[..., :128].reshape(tiles, groups, 32, 4), 4)
    plane = blocks[..., 128:-16]
    if bits > 4:  # 1, 2 or 4 words a lane, each of as many words' upper bits as fill it
        several = {5: 1, 6: 2, 8: 4}[bits]
        high = _fields(plane.reshape(tiles, groups, 32, several), bits - 4)
        high = high.reshape(tiles, groups, 32, several, 2, -1, 4)
        low = low | high.transpose(0, 1, 2, 3, 5, 4, 6).reshape(low.shape) << 4
    # tile, group, r, q, pair, h, half, step -> tile, h, r, group, q, step, pair, half
    codes = low.reshape(tiles, groups, 8, 4, 2, 2, 2, 4).transpose(0, 5, 2, 1, 3, 7, 4, 6).reshape(tiles * 16, -1)
    pairs = blocks[..., -16:].reshape(tiles, groups, 8, 2).transpose(0, 3, 2, 1).reshape(tiles * 16, groups)
    scale, bias = (part.view(np.float32).astype(np.float64) for part in (pairs << 16, pairs & 0xFFFF0000))
    numbers: Floats = codes.astype(np.float64) * np.repeat(scale, 64, 1) + np.repeat(bias, 64, 1)
    return numbers[: matrix.outputs]


def _fields(words: NDArray[np.uint32], width: int) -> NDArray[np.int64]:
    """The fields of `width` bits of each half of every word: [.., half, field]."""
    halves = np.stack([words & 0xFFFF, words >> 16], -1).astype(np.int64)
    fields: NDArray[np.int64] = halves[..., None] >> width * np.arange(16 // width) & (1 << width) - 1
    return fields


def at_address(address: int, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """What lies at an address, seen as an array."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype).reshape(shape)
