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
_BLOCK = 256  # pairs that a program sorts


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


@triton.jit(do_not_specialize=["pairs"])
def _count_pairs(ids, counts, pairs, block: tl.constexpr, wide: tl.constexpr):
    pair = tl.program_id(0) * block + tl.arange(0, block)
    entry = tl.load(ids + pair, mask=pair < pairs, other=wide)
    of = tl.arange(0, wide)
    tl.store(counts + tl.program_id(0) * wide + of, tl.sum((entry[:, None] == of[None, :]).to(tl.int32), 0))


@triton.jit(do_not_specialize=["pairs", "entries", "blocks", "tiles"])
def _sort_pairs(
    ids, counts, order, places, used, table, pairs, entries, blocks, tiles, tile,
    block: tl.constexpr, wide: tl.constexpr, step: tl.constexpr, some: tl.constexpr,
):  # fmt: skip
    # Where an entry's pairs begin, and how many of them lie in blocks before this one, by every program for itself.
    me, of = tl.program_id(0), tl.arange(0, wide)
    whole, ahead = tl.zeros([step, wide], tl.int32), tl.zeros([step, wide], tl.int32)
    for start in range(0, blocks, step):
        other = start + tl.arange(0, step)[:, None]
        counted = tl.load(counts + other * wide + of[None, :], mask=other < blocks, other=0)
        whole += counted
        ahead += tl.where(other < me, counted, 0)
    members = tl.sum(whole, 0)
    edge = tl.cumsum(members, 0) - members
    pair = me * block + tl.arange(0, block)
    entry = tl.load(ids + pair, mask=pair < pairs, other=wide)
    chosen = entry[:, None] == of[None, :]
    before = (tl.arange(0, block)[None, :] < tl.arange(0, block)[:, None]) & (entry[None, :] == entry[:, None])
    place = tl.sum(before.to(tl.int32), 1) + tl.sum(tl.where(chosen, (edge + tl.sum(ahead, 0))[None, :], 0), 1)
    tl.store(places + pair, place, mask=pair < pairs)
    tl.store(order + place, pair.to(tl.int64), mask=pair < pairs)
    if me == 0:
        tl.store(used + of, members, mask=of < entries)
    # A tile is of the entry before which as many tiles end as there are entries before it.
    needs = (members + (tile - 1)) // tile
    end = tl.cumsum(needs, 0)
    ended = tl.where(of < entries - 1, end, 2147483647)
    for start in range(me * some, tiles, blocks * some):
        number = start + tl.arange(0, some)
        mine = tl.sum((ended[None, :] <= number[:, None]).to(tl.int32), 1)
        here = of[None, :] == mine[:, None]
        row = tl.sum(tl.where(here, (edge - (end - needs) * tile)[None, :], 0), 1) + number * tile
        behind = tl.sum(tl.where(here, (edge + members)[None, :], 0), 1)
        tl.store(table + 3 * number, mine, mask=number < tiles)
        tl.store(table + 3 * number + 1, row, mask=number < tiles)
        tl.store(table + 3 * number + 2, behind, mask=number < tiles)


@triton.jit
def _spread_rows(x, places, out, width, slots: tl.constexpr, block: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * block + tl.arange(0, block)
    inside = place < width
    value = tl.load(x + row * width + place, mask=inside)
    for slot in tl.static_range(slots):
        to = tl.load(places + row * slots + slot).to(tl.int64)
        tl.store(out + to * width + place, value, mask=inside)


def sort_pairs(ids: Tensor, entries: int, tile: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """How the rows' pairs lie sorted by expert, without a wait for the device. `ids` int32 [T, k].

    Gives `order` int64 [T * k], the pairs in their new order; `places` int32 [T * k], where each pair has gone; `used`
    int32 [entries], the pairs of each; and `table` int32 [most tiles, 3], which for given T and k is always as long.
    """
    pairs, ids = ids.numel(), ids.contiguous()
    blocks, wide = triton.cdiv(pairs, _BLOCK), max(16, triton.next_power_of_2(entries))
    tiles = triton.cdiv(pairs, tile) + min(entries, pairs)
    sizes = (blocks * wide, pairs, entries, 3 * tiles)
    room = torch.empty(sum(sizes), dtype=torch.int32, device=ids.device)
    counts, places, used, table = room.split(sizes)
    order = torch.empty(pairs, dtype=torch.int64, device=ids.device)
    _count_pairs[(blocks,)](ids, counts, pairs, _BLOCK, wide, num_warps=4)
    _sort_pairs[(blocks,)](
        ids, counts, order, places, used, table, pairs, entries, blocks, tiles, tile, _BLOCK, wide, 32, 8, num_warps=8
    )
    return order, places, used, table.view(tiles, 3)


def spread_rows(x: Tensor, places: Tensor, slots: int) -> Tensor:
    """Rows [T * slots, K]: each row of x [T, K] at the `places` int32 [T * slots] of its pairs."""
    rows, width = x.shape
    out = x.new_empty((rows * slots, width))
    block = min(4096, triton.next_power_of_2(width))
    _spread_rows[(rows, triton.cdiv(width, block))](x.contiguous(), places, out, width, slots, block, num_warps=4)
    return out


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
