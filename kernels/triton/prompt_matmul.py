# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Rows of a prompt times a matrix: y = x w^T, each output one float32 chain over all of K in order.

          outputs: tile_n          A program makes tile_m x tile_n results; K is walked in steps of tile_k and
        +---------+---------+      never cut. Programs go down `group` tiles of rows before they go right, so that
tile_m  | 0  3  6 | 9       |      the tiles of w and x that are under way together stay in the cache.
        | 1  4  7 | 10  ... |
        | 2  5  8 | 11      |      Rows behind the last are read as zeros and not written. A row's bits hang on
        +---------+---------+      `Tiles` and the shape of w, not on T or on the row's place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

Tensor = Any


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a product is cut: tile sizes, warps, steps of K in flight, tiles of rows in a column.

    `resident` programs stay and take tile after tile; `through` writes results through shared memory.
    """

    m: int
    n: int
    k: int
    warps: int
    stages: int
    group: int = 8
    resident: bool = False
    through: bool = False


SMALL = Tiles(64, 64, 64, 4, 3)
"""Fits any card and any matrix."""


@triton.jit
def _place(tile, row_tiles, output_tiles, group: tl.constexpr):
    """The tile of rows and the tile of outputs that come as number `tile`."""
    column = tile // (group * output_tiles)
    height = tl.minimum(row_tiles - column * group, group)
    within = tile % (group * output_tiles)
    return column * group + within % height, within // height


@triton.jit
def _product(x, w, first_row, first_output, inputs, m: tl.constexpr, n: tl.constexpr, k: tl.constexpr):
    total = tl.zeros([m, n], tl.float32)
    for start in range(0, inputs, k):
        left = x.load([first_row, start])
        right = w.load([first_output, start])
        total = tl.dot(left, right.T, total)
    return total


@triton.jit
def _store(out, y, total, row, output, rows, outputs, m: tl.constexpr, n: tl.constexpr, through: tl.constexpr):
    if through:
        y.store([row, output], total.to(out.dtype.element_ty))
    else:
        down, right = row + tl.arange(0, m), output + tl.arange(0, n)
        inside = (down < rows)[:, None] & (right < outputs)[None, :]
        at = down.to(tl.int64)[:, None] * outputs + right[None, :]
        tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _multiply(
    x, w, y, out, rows, outputs, inputs,
    m: tl.constexpr, n: tl.constexpr, k: tl.constexpr, group: tl.constexpr, through: tl.constexpr,
):  # fmt: skip
    row, output = _place(tl.program_id(0), tl.cdiv(rows, m), tl.cdiv(outputs, n), group)
    total = _product(x, w, row * m, output * n, inputs, m, n, k)
    _store(out, y, total, row * m, output * n, rows, outputs, m, n, through)


@triton.jit(do_not_specialize=["rows"])
def _multiply_resident(
    x, w, y, out, rows, outputs, inputs,
    m: tl.constexpr, n: tl.constexpr, k: tl.constexpr, group: tl.constexpr, through: tl.constexpr,
    programs: tl.constexpr,
):  # fmt: skip
    row_tiles, output_tiles = tl.cdiv(rows, m), tl.cdiv(outputs, n)
    for tile in tl.range(tl.program_id(0), row_tiles * output_tiles, programs, flatten=True):
        row, output = _place(tile, row_tiles, output_tiles, group)
        total = tl.zeros([m, n], tl.float32)
        for start in range(0, inputs, k):
            left = x.load([row * m, start])
            right = w.load([output * n, start])
            total = tl.dot(left, right.T, total)
        _store(out, y, total, row * m, output * n, rows, outputs, m, n, through)


def tiles_for(outputs: int, inputs: int, capability: tuple[int, int], shared_bytes: int) -> Tiles:
    """The tiles of a matrix: of its shape and the card alone, since they may decide bits."""
    if capability[0] != 9 or shared_bytes < 220 << 10:
        return Tiles(128, 128, 32, 8, 3) if outputs >= 1024 else SMALL
    if outputs >= 8192:
        return Tiles(128, 256, 64, 8, 3, resident=True, through=True)
    return Tiles(128, 128, 64, 4, 4) if outputs > 64 else SMALL


def expert_tiles_for(capability: tuple[int, int], shared_bytes: int) -> Tiles:
    """The tiles of all experts' matrices: of the card alone, since they may decide bits."""
    if capability[0] != 9 or shared_bytes < 220 << 10:
        return Tiles(64, 128, 32, 4, 3)
    return Tiles(128, 128, 64, 8, 3)


def multiply(x: Tensor, w: Tensor, out: Tensor, tiles: Tiles, programs: int = 1) -> None:
    """`out` [T, N] = x [T, K] times w [N or more, K] transposed; all without gaps, K a multiple of 8.

    `programs` is how many stay when `tiles` has them stay: the card's multiprocessors.
    """
    rows, inputs = x.shape
    outputs = out.shape[1]
    through = tiles.through and outputs * out.element_size() % 16 == 0
    left = TensorDescriptor(x, [rows, inputs], [inputs, 1], [tiles.m, tiles.k])
    right = TensorDescriptor(w, [w.shape[0], inputs], [inputs, 1], [tiles.n, tiles.k])
    y = TensorDescriptor(out, [rows, outputs], [outputs, 1], [tiles.m, tiles.n]) if through else out
    given = (left, right, y, out, rows, outputs, inputs, tiles.m, tiles.n, tiles.k, tiles.group, through)
    count = triton.cdiv(rows, tiles.m) * triton.cdiv(outputs, tiles.n)
    if tiles.resident:
        held = (min(programs, count),)
        _multiply_resident[held](*given, programs, num_warps=tiles.warps, num_stages=tiles.stages)
    else:
        _multiply[(count,)](*given, num_warps=tiles.warps, num_stages=tiles.stages)
