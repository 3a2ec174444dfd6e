# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Decode attention over partitions of 256 absolute positions.

    position:   0 ... 255 | 256 ... 511 | ...           one program a row, key head and partition,
                tiles of 64 keys, in order              then one program a row and head merges partitions in order

A row's partitions, tiles and merges follow the positions of its own keys, never how many rows or partitions a launch
has. A key that may not be seen weighs exactly zero. A row of a tree reads keys of its window through `path`: at each
position the slot of its own ancestor, as if they were contiguous.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

Tensor = Any
# Half a page: a page's keys in one program leave most of the card idle at short lengths.
PARTITION = 256


@triton.jit
def _part(
    query, key_pages, value_pages, table, lanes, lengths, committed, path, most, total, mixed, scale, window,
    most_pages, most_path, partitions, heads, groups, shared: tl.constexpr, width: tl.constexpr, part: tl.constexpr,
):  # fmt: skip
    row, group, partition = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row)
    first = tl.maximum(length - window, 0) if window > 0 else 0
    low, high = partition * part, tl.minimum(partition * part + part, length)
    if (high > low) & (high > first):
        lane, before = tl.load(lanes + row).to(tl.int64), tl.load(committed + row)
        head, dim, tile = tl.arange(0, 16), tl.arange(0, width), tl.arange(0, 64)
        real = head < shared
        at_head = row * heads + group * shared + head
        q = tl.load(query + at_head[:, None] * width + dim[None, :], mask=real[:, None], other=0.0)
        top = tl.full([16], float("-inf"), tl.float32)
        weights = tl.zeros([16], tl.float32)
        acc = tl.zeros([16, width], tl.float32)
        for start in range(tl.maximum(low, first) // 64 * 64, high, 64):
            position = start + tile
            seen = (position < high) & (position >= first)
            own = tl.load(path + row * most_path + position - before, mask=seen & (position >= before), other=0)
            slot = tl.where(position >= before, own, position)
            page = tl.load(table + lane * most_pages + slot // 512, mask=seen, other=0).to(tl.int64)
            at = ((page * 512 + slot % 512) * groups + group) * width
            k = tl.load(key_pages + at[:, None] + dim[None, :], mask=seen[:, None], other=0.0)
            v = tl.load(value_pages + at[:, None] + dim[None, :], mask=seen[:, None], other=0.0)
            score = tl.where(seen[None, :], tl.dot(q, tl.trans(k)) * scale, float("-inf"))
            higher = tl.maximum(top, tl.max(score, 1))
            fade, weight = tl.exp(top - higher), tl.exp(score - higher[:, None])
            weights = weights * fade + tl.sum(weight, 1)
            acc = acc * fade[:, None] + tl.dot(weight.to(v.dtype), v)
            top = higher
        to = at_head * partitions + partition
        tl.store(most + to, top, mask=real)
        tl.store(total + to, weights, mask=real)
        tl.store(mixed + to[:, None] * width + dim[None, :], acc, mask=real[:, None])


@triton.jit
def _merge(most, total, mixed, lengths, out, window, partitions, heads, width: tl.constexpr, part: tl.constexpr):
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    length = tl.load(lengths + row)
    first = tl.maximum(length - window, 0) if window > 0 else 0
    dim = tl.arange(0, width)
    top, weights, acc = float("-inf"), 0.0, tl.zeros([width], tl.float32)
    for partition in range(first // part, tl.cdiv(length, part)):
        at = (row * heads + head) * partitions + partition
        theirs = tl.load(most + at)
        higher = tl.maximum(top, theirs)
        mine, other = tl.exp(top - higher), tl.exp(theirs - higher)
        weights = weights * mine + tl.load(total + at) * other
        acc = acc * mine + tl.load(mixed + at * width + dim) * other
        top = higher
    tl.store(out + (row * heads + head) * width + dim, (acc / weights).to(out.dtype.element_ty))


def attend_rows(
    query: Tensor, key_pages: Tensor, value_pages: Tensor, table: Tensor, lanes: Tensor, lengths: Tensor,
    committed: Tensor, path: Tensor, scratch: tuple[Tensor, Tensor, Tensor], out: Tensor, scale: float, window: int = 0,
) -> None:  # fmt: skip
    """Attention of rows [R, H, D] over their lanes' pages [pages, 512, G, D]; `out` [R, H, D].

    `table` int32 [lanes, pages of a lane]; `lanes`, `lengths` (keys a row reads, itself included) and `committed` (keys
    that lie at their own position) int32 [R]; `path` int32 [R, W]: the slot of the key at position committed + i.
    `scratch`: float32 [R, H, P], the same, and [R, H, P, D], for P partitions that hold the longest row. `window` 0
    reads all keys.
    """
    rows, heads, width = query.shape
    groups, partitions = key_pages.shape[2], scratch[0].shape[2]
    _part[(rows, groups, partitions)](
        query, key_pages, value_pages, table, lanes, lengths, committed, path, *scratch, scale, window, table.shape[1],
        path.shape[1], partitions, heads, groups, heads // groups, width, PARTITION, num_warps=4,
    )  # fmt: skip
    _merge[(rows, heads)](*scratch, lengths, out, window, partitions, heads, width, PARTITION, num_warps=4)
