# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Who is multiplied by whom: the lists that the row kernel's grouped form reads, made where the router's choice lies.

Pairs of a row and an expert are sorted by expert, then by their own order; an expert's pairs make items of up to 8.
Whatever the lists are, a pair's bits are those it has alone: they are a schedule.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow

Tensor = Any
MOST_PAIRS = 256
"""Pairs of one launch; the lists of members always have room for so many."""
AN_ITEM = 8
TOGETHER = 8
"""Rows that choose in one program."""


@triton.jit
def _list(ids, items, rows, places, pairs, slots, most: tl.constexpr, step: tl.constexpr, an_item: tl.constexpr):
    pair = tl.arange(0, most)
    real = pair < pairs
    expert = tl.load(ids + pair, mask=real, other=2147483647)
    before, rank, all_of = tl.zeros([most], tl.int32), tl.zeros([most], tl.int32), tl.zeros([most], tl.int32)
    for start in range(0, most, step):
        other = start + tl.arange(0, step)
        theirs = tl.load(ids + other, mask=other < pairs, other=2147483647)[None, :]
        alike = theirs == expert[:, None]
        before += tl.sum((theirs < expert[:, None]).to(tl.int32), 1)
        rank += tl.sum((alike & (other[None, :] < pair[:, None])).to(tl.int32), 1)
        all_of += tl.sum(alike.to(tl.int32), 1)
    first = before + rank  # the pair's place among all, sorted
    tl.store(rows + 2 * first, pair // slots, mask=real)
    tl.store(rows + 2 * first + 1, pair, mask=real)
    tl.store(places + 2 * first, pair, mask=real)
    tl.store(places + 2 * first + 1, pair, mask=real)
    begins = real & (rank % an_item == 0)
    # Items before an item: those of lower experts, which are counted pair by pair, and its own expert's.
    item = rank // an_item
    for start in range(0, most, step):
        other = start + tl.arange(0, step)
        theirs = tl.load(ids + other, mask=other < pairs, other=2147483647)
        rank_of = tl.zeros([step], tl.int32)
        for again in range(0, most, step):
            third = again + tl.arange(0, step)
            thirds = tl.load(ids + third, mask=third < pairs, other=2147483647)
            equal = (thirds[None, :] == theirs[:, None]) & (third[None, :] < other[:, None])
            rank_of += tl.sum(equal.to(tl.int32), 1)
        opens = (rank_of % an_item == 0) & (other < pairs)
        item += tl.sum((opens[None, :] & (theirs[None, :] < expert[:, None])).to(tl.int32), 1)
    tl.store(items, tl.sum(begins.to(tl.int32), 0))
    tl.store(items + 1 + 3 * item, expert, mask=begins)
    tl.store(items + 2 + 3 * item, first, mask=begins)
    tl.store(items + 3 + 3 * item, tl.minimum(all_of - rank, an_item), mask=begins)


@triton.jit
def _list_items(
    ids,
    items,
    rows,
    places,
    pairs,
    slots,
    most: tl.constexpr,
    step: tl.constexpr,
    an_item: tl.constexpr,
    early: tl.constexpr,
):
    begin(early)
    _list(ids, items, rows, places, pairs, slots, most, step, an_item)


@triton.jit
def _choose_and_list(
    logits, correction, ids, weights, items, rows, places, count, experts, chosen, slots, scale,
    corrected: tl.constexpr, normalize: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, most: tl.constexpr,
    step: tl.constexpr, an_item: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    # Every rounding is of one number or in the order of choice, so bits are those of the router that takes a row alone.
    row, expert = tl.arange(0, tall), tl.arange(0, wide)[None, :]
    there, real = row < count, expert < experts
    logit = tl.load(logits + row[:, None] * experts + expert, mask=there[:, None] & real, other=float("-inf"))
    score = 1.0 / (1.0 + tl.exp(-logit))
    ranked = score
    if corrected:
        ranked += tl.load(correction + expert, mask=real, other=0.0)
    ranked = tl.where(real, ranked, float("-inf"))
    total = tl.zeros([tall], tl.float32)
    if normalize:
        left = ranked
        for _ in range(chosen):
            best = tl.min(tl.where(left == tl.max(left, 1)[:, None], expert, wide), 1)
            total += tl.sum(tl.where(expert == best[:, None], score, 0.0), 1)
            left = tl.where(expert == best[:, None], float("-inf"), left)
        total += 1e-20
    else:
        total += 1.0
    for i in range(chosen):
        best = tl.min(tl.where(ranked == tl.max(ranked, 1)[:, None], expert, wide), 1)
        share = tl.sum(tl.where(expert == best[:, None], score, 0.0), 1)
        tl.store(ids + row * slots + i, tl.minimum(best, experts - 1), mask=there)  # NaN is equal to nothing
        tl.store(weights + row * slots + i, share / total * scale, mask=there)
        ranked = tl.where(expert == best[:, None], float("-inf"), ranked)
    for i in range(chosen, slots):
        tl.store(ids + row * slots + i, tl.zeros([tall], tl.int32) + (experts + i - chosen), mask=there)
        tl.store(weights + row * slots + i, tl.zeros([tall], tl.float32) + 1.0, mask=there)
    tl.debug_barrier()  # every id is written before one is read
    _list(ids, items, rows, places, count * slots, slots, most, step, an_item)


def list_items(ids: Tensor, items: Tensor, rows: Tensor, places: Tensor) -> None:
    """The items and members of the experts `ids` int32 [R, k] that rows chose; R * k is at most 256.

    `items` int32 [1 + 3 * 256]: a count, then for each an expert, its first member and its 1 to 8 members. `rows` and
    `places` int32 [256, 2], members of a product that reads a row's x and of one that reads a pair's: both write to the
    pair's place, row * k + slot.
    """
    pairs, slots = ids.numel(), ids.shape[1]
    if pairs > MOST_PAIRS:
        raise ValueError(f"{pairs} pairs of a row and an expert are more than a launch takes: {MOST_PAIRS}")
    most = max(16, triton.next_power_of_2(pairs))
    _list_items[(1,)](
        ids, items, rows, places, pairs, slots, most, min(most, 32), AN_ITEM, num_warps=4, **follow(items)
    )


def choose_and_list(
    logits: Tensor,
    correction: Tensor | None,
    ids: Tensor,
    weights: Tensor,
    scale: float,
    lists: tuple[Tensor, Tensor, Tensor],
    *,
    chosen: int,
    normalize: bool,
) -> None:
    """`routers.choose_rows` by sigmoid scores and `list_items` into `lists` (items, rows, places) in one launch.

    For at most 8 rows: they share one program. The bits are those of the two launches.
    """
    rows, experts = logits.shape
    slots, corrected = ids.shape[1], correction is not None
    if rows > TOGETHER:
        raise ValueError(f"{rows} rows are more than choose together: {TOGETHER}")
    most = max(16, triton.next_power_of_2(rows * slots))
    _choose_and_list[(1,)](
        logits, correction if corrected else logits, ids, weights, *lists, rows, experts, chosen, slots, scale,
        corrected, normalize, triton.next_power_of_2(rows), triton.next_power_of_2(experts), most, min(most, 32),
        AN_ITEM, num_warps=4, **follow(ids),
    )  # fmt: skip
