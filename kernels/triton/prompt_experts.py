# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""A prompt's rows times the matrices of the experts they chose, rows of one expert side by side; then their sum.

    sorted rows   | expert 0  | expert 2 | expert 3 ...   `table` lists tiles: expert, first row, row behind the last.
                  |t0 | t1 |  |t2  |     |t3 |            A tile that reaches into the next expert's rows multiplies
                                                          them too and does not write them.

A row's bits hang on `Tiles` and a matrix's shape alone: neither on how many rows chose its expert nor on its place.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tensorfold.kernels.triton.prompt_matmul import Tiles

Tensor = Any


@triton.jit(do_not_specialize=["first_entry", "last_entry"])
def _multiply_groups(
    x, w, out, table, first_entry, last_entry, outputs, padded, inputs,
    m: tl.constexpr, n: tl.constexpr, k: tl.constexpr, square: tl.constexpr,
):  # fmt: skip
    right_tiles = tl.cdiv(outputs, n)
    tile, output = tl.program_id(0) // right_tiles, tl.program_id(0) % right_tiles * n
    expert, row, behind = tl.load(table + 3 * tile), tl.load(table + 3 * tile + 1), tl.load(table + 3 * tile + 2)
    if row >= behind or expert < first_entry or expert >= last_entry:
        return
    total = tl.zeros([m, n], tl.float32)
    top = (expert - first_entry) * padded + output
    for start in range(0, inputs, k):
        left = x.load([row, start])
        right = w.load([top, start])
        total = tl.dot(left, right.T, total)
    if square:
        total = tl.maximum(total, 0.0)
        total = total * total
    down, across = row + tl.arange(0, m), output + tl.arange(0, n)
    inside = (down < behind)[:, None] & (across < outputs)[None, :]
    at = down.to(tl.int64)[:, None] * outputs + across[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _sum_slots(made, places, weights, out, width, slots: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * block + tl.arange(0, block)
    inside = place < width
    total = tl.zeros([block], tl.float32)
    for slot in tl.static_range(slots):
        source = tl.load(places + row * slots + slot).to(tl.int64)
        value = tl.load(made + source * width + place, mask=inside, other=0.0).to(tl.float32)
        total = tl.fma(tl.load(weights + row * slots + slot), value, total)
    tl.store(out + row * width + place, total.to(out.dtype.element_ty), mask=inside)


def sort_pairs(ids: Tensor, entries: int, tile: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How the rows' pairs lie sorted by expert, without a wait for the device. `ids` int32 [T, k].

    Gives `order` int64 [T * k], the pairs in their new order; `places` int32 [T * k], where each pair has gone; `used`
    int32 [entries], the pairs of each; and `table` int32 [most tiles, 3], which for given T and k is always as long.
    """
    pairs = ids.numel()
    found, order = torch.sort(ids.flatten(), stable=True)
    places = torch.empty(pairs, dtype=torch.int32, device=ids.device)
    places[order] = torch.arange(pairs, dtype=torch.int32, device=ids.device)
    every = torch.arange(entries + 1, dtype=ids.dtype, device=ids.device)
    edges = torch.searchsorted(found, every, out_int32=True)
    used = edges[1:] - edges[:-1]
    ends = ((used + (tile - 1)) // tile).cumsum(0, dtype=torch.int32)
    number = torch.arange(-(-pairs // tile) + min(entries, pairs), dtype=torch.int32, device=ids.device)
    expert = torch.searchsorted(ends, number, right=True, out_int32=True).clamp_(max=entries - 1)
    begun = torch.where(expert > 0, ends[(expert - 1).clamp_(min=0)], 0)
    row = edges[expert] + (number - begun) * tile
    return order, places, used, torch.stack([expert, row, edges[expert + 1]], 1).contiguous()


def multiply_groups(
    x: Tensor, w: Tensor, out: Tensor, table: Tensor, entries: tuple[int, int], tiles: Tiles, square: bool = False
) -> None:
    """`out` [P, N] = each sorted row of x [P, K] times its own of the matrices w [entries, N16, K] transposed.

    `entries`: which experts `w` holds, first and behind the last; rows of others are left. `square` squares what is
    above zero and drops what is below.
    """
    inputs, outputs = x.shape[1], out.shape[1]
    left = TensorDescriptor(x, list(x.shape), [inputs, 1], [tiles.m, tiles.k])
    right = TensorDescriptor(w, [w.shape[0] * w.shape[1], inputs], [inputs, 1], [tiles.n, tiles.k])
    grid = (len(table) * triton.cdiv(outputs, tiles.n),)
    cut = (tiles.m, tiles.n, tiles.k)
    _multiply_groups[grid](
        left, right, out, table, *entries, outputs, w.shape[1], inputs, *cut, square,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip


def sum_slots(made: Tensor, places: Tensor, weights: Tensor, out: Tensor) -> None:
    """`out` [T, N] = the sum of a row's pairs, slot after slot: rows `places` int32 [T * k] of `made`, times [T, k]."""
    rows, width = out.shape
    _sum_slots[(rows, triton.cdiv(width, 1024))](made, places, weights, out, width, weights.shape[1], 1024, num_warps=4)
