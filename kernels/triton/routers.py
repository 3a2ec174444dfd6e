# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Routers: float32 logits of a row against bf16 weights, and its best experts; of equals the lower id is better.

    logits: a program has one expert, whose weights it holds before the rows are there, and up to 8 rows
    choice: a warp has a row, a lane some neighbouring experts. The best is found `count` times: of the keys the
            largest, of those that are equal the lowest id. A key is a score's bits in an order of integers, of which
            a warp finds the largest in one step.

A row's sums are laid out by the width alone. What is added in a choice is added in the order of choice.

Tiles of experts are [32 lanes, rows, experts a lane]: the compiler lays scattered stores out along the first axis, then
along the second, so that loads, reductions and stores agree here and nothing goes through shared memory.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import follow, let_next, wait_before

Tensor = Any
_MOST_HELD = 32768  # numbers of x that a program holds


@triton.jit(do_not_specialize=["rows"])
def _logits(x, weight, out, rows, width, experts, tall: tl.constexpr, block: tl.constexpr, early: tl.constexpr):
    let_next(early)
    expert = tl.program_id(0)
    place = tl.arange(0, block)[None, :]
    inside = place < width
    learnt = tl.load(weight + expert.to(tl.int64) * width + place, mask=inside, other=0.0)
    wait_before(early)
    row = (tl.program_id(1) * tall + tl.arange(0, tall)).to(tl.int64)
    there = row < rows
    value = tl.load(x + row[:, None] * width + place, mask=there[:, None] & inside, other=0.0)
    total = tl.sum(learnt.to(tl.float32) * value.to(tl.float32), 1)
    tl.store(out + row * experts + expert, total, mask=there)


@triton.jit
def lay_out(experts, wide: tl.constexpr):
    """Experts [32, 1, held]: a lane holds neighbours. Clamped, so that no load takes several at once: see above."""
    held: tl.constexpr = (wide + 31) // 32
    expert = tl.arange(0, 32)[:, None, None] * held + tl.arange(0, held)[None, None, :]
    return expert, tl.minimum(expert, experts - 1)


@triton.jit
def most(values):
    """The largest of each row of [32, tall, held]: of each lane's, then of a warp's lanes."""
    return tl.max(tl.max(values, 2), 0)[None, :, None]


@triton.jit
def pick(
    logit, shift, expert, real, scale,
    count: tl.constexpr, softmax: tl.constexpr, over_chosen: tl.constexpr, normalize: tl.constexpr,
):  # fmt: skip
    """For rows of `logit` [32, tall, held]: the slot of each expert, `count` where it is not chosen, and its weight.

    `shift` [32, 1, held] is added to scores for choosing. NaN ranks with minus infinity; a row's experts all differ.
    """
    logit = tl.where(real, logit, float("-inf"))
    if softmax or over_chosen:
        raised = tl.exp(logit - most(logit))
    if softmax:
        score = raised / tl.sum(tl.sum(raised, 2), 0)[None, :, None]
    else:
        score = 1.0 / (1.0 + tl.exp(-logit))
    ranked = score + shift
    bits = ranked.to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    key = tl.where(ranked == ranked, key, -2139095041)  # the key of minus infinity
    key = tl.where(real, key, -2147483648)  # below every key
    if over_chosen:
        value = raised
    else:
        value = score
    pattern = value.to(tl.int32, bitcast=True)
    slot = tl.full(key.shape, count, tl.int32)
    total = tl.zeros([1, key.shape[1], 1], tl.float32)
    behind = -expert
    for i in tl.static_range(count):
        chosen = behind == most(tl.where(key == most(key), behind, -2147483647))
        if normalize or over_chosen:
            total += most(tl.where(chosen, pattern, -2147483648)).to(tl.float32, bitcast=True)
        slot = tl.where(chosen, i, slot)
        key = tl.where(chosen, -2147483648, key)
    if normalize or over_chosen:
        return slot, value / (total + 1e-20) * scale
    else:
        return slot, value * scale


@triton.jit
def store_choice(
    ids, weights, slot, weight, row, there, expert, experts,
    count: tl.constexpr, slots: tl.constexpr, tall: tl.constexpr,
):  # fmt: skip
    """What rows chose into `ids` and `weights` [R, slots]; behind it the entries behind the last expert."""
    mine = (slot < count) & there[None, :, None]
    at = row[None, :, None] * slots + slot
    tl.store(ids + at, expert + tl.zeros_like(slot), mask=mine)
    tl.store(weights + at, weight, mask=mine)
    for i in tl.static_range(count, slots):
        tl.store(ids + row * slots + i, tl.zeros([tall], tl.int32) + (experts + i - count), mask=there)
        tl.store(weights + row * slots + i, tl.full([tall], 1.0, tl.float32), mask=there)


@triton.jit(do_not_specialize=["rows", "experts"])
def _choose(
    logits, correction, ids, weights, rows, experts, scale,
    count: tl.constexpr, slots: tl.constexpr, softmax: tl.constexpr, over_chosen: tl.constexpr,
    normalize: tl.constexpr, corrected: tl.constexpr, tall: tl.constexpr, wide: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    expert, place = lay_out(experts, wide)
    shift = tl.zeros(expert.shape, tl.float32)
    if corrected:
        shift = tl.load(correction + place)
    wait_before(early)
    row = tl.program_id(0) * tall + tl.arange(0, tall)
    there = row < rows
    row = tl.minimum(row, rows - 1).to(tl.int64)  # rows that are not there read the last one
    logit = tl.load(logits + row[None, :, None] * experts + place)
    slot, weight = pick(logit, shift, expert, expert < experts, scale, count, softmax, over_chosen, normalize)
    store_choice(ids, weights, slot, weight, row, there, expert, experts, count, slots, tall)


def score_rows(x: Tensor, weight: Tensor, logits: Tensor) -> None:
    """`logits` float32 [R, E] of rows [R, D] and `weight` [E, D]: one chain a row, whatever R is."""
    rows, width = x.shape
    # 8 numbers a thread, which never has fewer: a row is then laid out alike, alone and beside others.
    block = max(256, triton.next_power_of_2(width))
    tall = max(1, min(triton.next_power_of_2(rows), 4 if rows <= 16 else 8, _MOST_HELD // block))
    _logits[(len(weight), triton.cdiv(rows, tall))](
        x, weight, logits, rows, width, len(weight), tall, block, num_warps=min(32, block // 256), **follow(logits)
    )


def choose_rows(
    logits: Tensor,
    correction: Tensor | None,
    ids: Tensor,
    weights: Tensor,
    scale: float,
    *,
    chosen: int = 0,
    scoring: str = "sigmoid",
    over_chosen: bool = False,
    normalize: bool = True,
) -> None:
    """The `ids` int32 [R, k] and `weights` float32 [R, k] of each row's best experts, best first.

    `correction` float32 [E] counts for choosing only. Weights are the chosen scores, or the softmax of the chosen
    logits when `over_chosen`, divided by their sum when `normalize`, times `scale`. Where fewer are `chosen` than k,
    the slots behind them are the entries behind the last expert, in order, with a weight of 1.
    """
    rows, experts = logits.shape
    slots, corrected = ids.shape[1], correction is not None
    # The same code for every row count: sums over all experts, of a softmax, are laid out by it.
    _choose[(triton.cdiv(rows, 4),)](
        logits, correction if corrected else logits, ids, weights, rows, experts, scale,
        chosen or slots, slots, scoring == "softmax", over_chosen, normalize, corrected,
        4, triton.next_power_of_2(experts), num_warps=4, **follow(ids),
    )  # fmt: skip


def route_rows(
    x: Tensor, weight: Tensor, correction: Tensor | None, logits: Tensor, ids: Tensor, weights: Tensor, scale: float
) -> None:
    """`choose_rows` by sigmoid scores of rows [R, D], whose `logits` float32 [R, E] are scratch."""
    score_rows(x, weight, logits)
    choose_rows(logits, correction, ids, weights, scale)
