# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""What the programs of decode attention share out among themselves: units of work, found on the device.

A row's keys are cut into at most `parts` partitions of equal size at absolute positions; the size is a multiple of a
key tile, `least` tiles at the least, and follows from the row's own length, so a row has the same cuts in every
company. Neighbouring rows of one lane with one size are a run. A run's rows share tiles of `per_tile` rows, and a unit
is one tile, one key head (or a share of its heads, each counted among the groups) and one partition.

Rows of a tree read the window's keys by different paths. Inside a tile, a row is served by the last row that has it as
an ancestor (a chain's rows all by its last), so that each path is read once.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Fields of a plan: of each run the units up to its end, its first row, rows, first partition and partition size; of
# each row the row that serves it, of each tile its leaves in order, of each row how many its tile has, and its tile's
# greatest length.
FIELDS = 9
# Control tensors lie at any multiple of four bytes, by row count; counts change from launch to launch. A kernel that
# were compiled anew for each would stall a launch, and rows of two counts would meet different machine code.
LOOSE = ("lanes", "lengths", "committed", "path", "positions", "slots", "table", "pages", "moves")
COUNTED = ("rows", "start", "count", "most_pages", "most_path")


def launches(*names: str) -> dict[str, list[str]]:
    """How a kernel with these arguments is to be specialised: by none that differs from launch to launch."""
    return {
        "do_not_specialize": [name for name in names if name in COUNTED],
        "do_not_specialize_on_alignment": [name for name in names if name in LOOSE],
    }


@triton.jit
def partition_size(
    length, window, windowed: tl.constexpr, parts: tl.constexpr, step: tl.constexpr, least: tl.constexpr,
):  # fmt: skip
    """Keys of one partition of a row that reads `length` keys, or the newest `window` of them.

    A window lies in no more than `parts` partitions, wherever it begins.
    """
    if windowed:
        return step * tl.maximum(least, tl.cdiv(tl.minimum(length, window), step * (parts - 1)))
    return step * tl.maximum(least, tl.cdiv(length, step * parts))


@triton.jit
def partition_range(length, window, size, windowed: tl.constexpr):
    """The first partition a row reads, and the one behind its last."""
    if windowed:
        return tl.maximum(length - window, 0) // size, tl.cdiv(length, size)
    return length * 0, tl.cdiv(length, size)


@triton.jit
def plan_rows(
    lanes, lengths, committed, path, plan, rows, most_path, window, windowed: tl.constexpr, groups: tl.constexpr,
    per_tile: tl.constexpr, parts: tl.constexpr, least: tl.constexpr, step: tl.constexpr, block: tl.constexpr,
    stride: tl.constexpr,
):  # fmt: skip
    """Write the plan int32 [FIELDS, stride] of at most `block` rows; one program does it all."""
    j = tl.arange(0, block)
    real, later = j < rows, (j < rows) & (j > 0)
    length = tl.load(lengths + j, mask=real, other=1)
    size = partition_size(length, window, windowed, parts, step, least)
    length_before = tl.load(lengths + j - 1, mask=later, other=1)
    size_before = partition_size(length_before, window, windowed, parts, step, least)
    lane_before = tl.load(lanes + j - 1, mask=later, other=-1)
    opens = (j == 0) | (tl.load(lanes + j, mask=real, other=-1) != lane_before) | (size != size_before)
    run = tl.where(real, tl.cumsum((real & opens).to(tl.int32), 0) - 1, block)
    low, high = partition_range(length, window, size, windowed)
    mine = run[None, :] == j[:, None]
    count = tl.sum(mine.to(tl.int32), 1)
    lowest = tl.min(tl.where(mine, low[None, :], 1 << 30), 1)
    highest = tl.max(tl.where(mine, high[None, :], 0), 1)
    units = tl.where(count > 0, tl.cdiv(count, per_tile) * groups * (highest - lowest), 0)
    tl.store(plan + j, tl.cumsum(units, 0))
    tl.store(plan + stride + j, tl.min(tl.where(mine, j[None, :], block), 1))
    tl.store(plan + 2 * stride + j, count)
    tl.store(plan + 3 * stride + j, lowest)
    tl.store(plan + 4 * stride + j, tl.max(tl.where(mine, size[None, :], 0), 1))
    same = run[None, :] == run[:, None]
    opened = tl.min(tl.where(same, j[None, :], block), 1)
    tile = (j - opened) // per_tile
    together = same & (tile[None, :] == tile[:, None]) & real[None, :] & real[:, None]
    depth = length - 1 - tl.load(committed + j, mask=real, other=0)
    own = tl.load(path + j * most_path + depth, mask=real & (depth >= 0), other=0)
    below = together & (depth[:, None] >= 0) & (depth[:, None] <= depth[None, :])
    theirs = tl.load(path + j[None, :] * most_path + depth[:, None], mask=below, other=-1)
    above = together & ((depth[:, None] < 0) | (theirs == own[:, None]))
    server = tl.max(tl.where(above, j[None, :], -1), 1)
    leaf = server == j
    ahead = together & leaf[None, :]
    rank = tl.sum((ahead & (j[None, :] < j[:, None])).to(tl.int32), 1)
    tl.store(plan + 5 * stride + j, server)
    tl.store(plan + 6 * stride + opened + tile * per_tile + rank, j, mask=real & leaf)
    tl.store(plan + 7 * stride + j, tl.sum(ahead.to(tl.int32), 1))
    tl.store(plan + 8 * stride + j, tl.max(tl.where(together, length[None, :], 0), 1))
