# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Who is multiplied by whom: the lists that the row kernel's grouped form reads, made where the router's choice lies.

Pairs of a row and an expert are sorted by expert, then by their own order; an expert's pairs make items of up to 8.
A row chooses an expert once at most, so who chose an expert is one bit a row: a pair's place among the expert's pairs
is a count of the bits below its own, and an expert's first place a sum over the experts before it. Whatever the lists
are, a pair's bits are those it has alone: they are a schedule.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow, let_next, wait_before
from tensorfold.kernels.triton.routers import lay_out, pick, store_choice

Tensor = Any
MOST_PAIRS = 256
"""Pairs of one launch; the lists of members always have room for so many."""
AN_ITEM = 8
TOGETHER = 32
"""Rows that choose in one program: a bit each."""


@triton.jit
def _bits_of(word):
    word = word - ((word >> 1) & 0x55555555)
    word = (word & 0x33333333) + ((word >> 2) & 0x33333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F
    return ((word * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def _store_pair(rows, places, place, row, pair, mask):
    tl.store(rows + 2 * place, row, mask=mask)
    tl.store(rows + 2 * place + 1, pair, mask=mask)
    tl.store(places + 2 * place, pair, mask=mask)
    tl.store(places + 2 * place + 1, pair, mask=mask)


@triton.jit
def _list_chosen(
    slot, expert, items, rows, places, count, experts,
    chosen: tl.constexpr, slots: tl.constexpr, tall: tl.constexpr, an_item: tl.constexpr,
):  # fmt: skip
    # `slot` [32, tall, held] of rows and experts, below `chosen` where a row chose one; rows from `count` on are not
    # there. Sums over experts are made by every row for itself, so that warps meet once.
    row = tl.arange(0, tall)[None, :, None]
    mine = (slot < chosen) & (row < count)
    who = tl.sum(mine.to(tl.int32) << row, 1).to(tl.uint32, bitcast=True)[:, None, :]
    members = _bits_of(who)
    needs = (members + (an_item - 1)) // an_item
    both = members + (needs << 16) + tl.zeros_like(slot)  # two sums in one
    lanes = tl.sum(both, 2)[:, :, None]
    before = tl.cumsum(lanes, 0) - lanes + tl.cumsum(both, 2) - both
    first, item = before & 0xFFFF, before >> 16
    rank = _bits_of((who << (31 - row).to(tl.uint32)) << 1)  # of those that chose it, rows before
    _store_pair(rows, places, first + rank, row + tl.zeros_like(slot), row * slots + slot, mine)
    at, left = items + 1 + 3 * (item + row), members - row * an_item  # an item's number among its expert's is a row's
    tl.store(at, expert + tl.zeros_like(slot), mask=left > 0)
    tl.store(at + 1, first + row * an_item, mask=left > 0)
    tl.store(at + 2, tl.minimum(left, an_item), mask=left > 0)
    # Entries behind the last expert are every row's.
    made = tl.sum(tl.sum(tl.sum(needs, 2), 0), 0)
    each = (count + (an_item - 1)) // an_item
    tl.store(items, made + each * (slots - chosen))
    one = tl.arange(0, tall)
    for more in tl.static_range(slots - chosen):
        begun = count * (chosen + more)
        _store_pair(rows, places, begun + one, one, one * slots + chosen + more, one < count)
        at, left = items + 1 + 3 * (made + each * more + one), count - one * an_item
        tl.store(at, one * 0 + (experts + more), mask=left > 0)
        tl.store(at + 1, begun + one * an_item, mask=left > 0)
        tl.store(at + 2, tl.minimum(left, an_item), mask=left > 0)


@triton.jit(do_not_specialize=["count", "experts"])
def _choose_and_list(
    logits, correction, ids, weights, items, rows, places, count, experts, scale, apart,
    chosen: tl.constexpr, slots: tl.constexpr, corrected: tl.constexpr, normalize: tl.constexpr,
    step: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, an_item: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    expert, place = lay_out(experts, wide)
    shift = tl.zeros(expert.shape, tl.float32)
    if corrected:
        shift = tl.load(correction + place)
    wait_before(early)
    # Every rounding is of one number or in the order of choice, so bits are those of the router that takes a row alone.
    group = tl.program_id(0)
    here = tl.minimum(count - group * step, step)
    there = tl.arange(0, tall) < here
    row = tl.minimum(group * step + tl.arange(0, tall), count - 1)  # rows that are not there read the last one
    logit = tl.load(logits + row[None, :, None] * experts + place)
    slot, weight = pick(logit, shift, expert, expert < experts, scale, chosen, False, False, normalize)
    store_choice(ids, weights, slot, weight, row, there, expert, experts, chosen, slots, tall)
    move = group * apart
    _list_chosen(slot, expert, items + move, rows + move, places + move, here, experts, chosen, slots, tall, an_item)


@triton.jit(do_not_specialize=["pairs"])
def _list_items(
    ids, items, rows, places, pairs, slots, most: tl.constexpr, step: tl.constexpr, an_item: tl.constexpr,
    early: tl.constexpr,
):  # fmt: skip
    begin(early)
    pair = tl.arange(0, most)[:, None]
    real = pair < pairs
    expert = tl.load(ids + pair, mask=real, other=2147483647)
    # Three counts in one number: pairs of lower experts, of this expert before this one, and of this expert.
    counts = tl.zeros([most, step], tl.int32)
    for start in range(0, most, step):
        other = start + tl.arange(0, step)[None, :]
        theirs = tl.load(ids + other, mask=other < pairs, other=2147483647)
        counts += tl.where(theirs < expert, 1, 0)
        counts += tl.where(theirs == expert, tl.where(other < pair, 1049600, 1048576), 0)
    found = tl.sum(counts, 1)[:, None]
    before, rank, all_of = found & 1023, (found >> 10) & 1023, found >> 20
    first = before + rank  # the pair's place among all, sorted
    _store_pair(rows, places, first, pair // slots, pair, real)
    begins = real & (rank % an_item == 0)
    # Items before an item: those of lower experts and its own expert's. Who begins one is left where items end.
    tl.store(items + 1 + 2 * most + pair, begins.to(tl.int32))
    tl.debug_barrier()
    lower = tl.zeros([most, step], tl.int32)
    for start in range(0, most, step):
        other = start + tl.arange(0, step)[None, :]
        theirs = tl.load(ids + other, mask=other < pairs, other=2147483647)
        lower += tl.where(theirs < expert, tl.load(items + 1 + 2 * most + other), 0)
    item = rank // an_item + tl.sum(lower, 1)[:, None]
    tl.debug_barrier()
    tl.store(items, tl.sum(tl.sum(begins.to(tl.int32), 1), 0))
    tl.store(items + 1 + 3 * item, expert, mask=begins)
    tl.store(items + 2 + 3 * item, first, mask=begins)
    tl.store(items + 3 + 3 * item, tl.minimum(all_of - rank, an_item), mask=begins)


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
        ids, items, rows, places, pairs, slots, most, min(most, 32), AN_ITEM, num_warps=8, **follow(items)
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
    apart: int = 0,
) -> None:
    """`routers.choose_rows` by sigmoid scores and `list_items` into `lists` (items, rows, places) in one launch.

    Each 256 / k rows, at most 32, share a program and lists; the lists of the next begin `apart` numbers further on.
    The bits are those of the two launches.
    """
    rows, experts = logits.shape
    slots, corrected = ids.shape[1], correction is not None
    step = MOST_PAIRS // slots
    if min(rows, step) > TOGETHER:
        raise ValueError(f"{rows} rows of {slots} experts are more than choose together: {TOGETHER}")
    if rows > step and not apart:
        raise ValueError(f"{rows} rows of {slots} experts need lists apart from each other")
    tall = triton.next_power_of_2(min(rows, step))
    _choose_and_list[(triton.cdiv(rows, step),)](
        logits, correction if corrected else logits, ids, weights, *lists, rows, experts, scale, apart,
        chosen, slots, corrected, normalize, step, tall, triton.next_power_of_2(experts), AN_ITEM,
        num_warps=min(tall, 4) if tall <= 8 else 8, **follow(ids),
    )  # fmt: skip
