# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""The best candidates of every drafted position, and scores of each behind each candidate of the position before.

    logits of a position | 2048 | 2048 | ... |   a program each: the best of its part, one after another
    the best of all parts                        a program a position: the best of these, in order

No row of a reply follows from them: a poor candidate costs a row of a window.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow

Tensor = Any
PART = 2048
LOWEST = tl.constexpr(-3.0e38)


@triton.jit
def _best_of_parts(
    logits, values, places, width, count: tl.constexpr, block: tl.constexpr, early: tl.constexpr
):  # fmt: skip
    begin(early)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, block)
    place = part * block + lane
    value = tl.load(logits + row * width + place, mask=place < width, other=float("-inf"))
    # What was taken is -inf, so that nothing is taken twice; what is no number, or has no chance, stands above that.
    value = tl.where((place < width) & ((value > LOWEST) == 0), LOWEST, value)
    out = (row * tl.num_programs(1) + part) * count
    for nth in range(count):
        top = tl.max(value, 0)
        at = tl.min(tl.where(value == top, lane, block - 1), 0)
        tl.store(values + out + nth, top)
        tl.store(places + out + nth, part * block + at)
        value = tl.where(lane == at, float("-inf"), value)


@triton.jit
def _best(
    values, places, names, best, told, held, numbers, count: tl.constexpr, named: tl.constexpr, block: tl.constexpr,
    early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, lane = tl.program_id(0).to(tl.int64), tl.arange(0, block)
    value = tl.load(values + row * held + lane, mask=lane < held, other=float("-inf"))
    place = tl.load(places + row * held + lane, mask=lane < held, other=0)
    for nth in range(count):
        top = tl.max(value, 0)
        at = tl.min(tl.where(value == top, lane, block - 1), 0)
        name = tl.sum(tl.where(lane == at, place, 0), 0)
        if named:
            name = tl.load(names + name)
        tl.store(best + row * count + nth, name)
        tl.store(told + row * numbers + nth, name.to(tl.float32))
        tl.store(told + row * numbers + count + nth, top)
        value = tl.where(lane == at, float("-inf"), value)


@triton.jit
def _pairs(
    best, pending, mixed, before, behind, told, rank, numbers, each, count: tl.constexpr, block: tl.constexpr,
    wide: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row = tl.program_id(0).to(tl.int64)
    lane, number = tl.arange(0, block), tl.arange(0, wide)
    real, inside = lane < count, number < rank
    behind_one = row % each > 0
    above = tl.load(best + (row - 1) * count + lane, mask=lane < tl.where(behind_one, count, 0), other=0)
    above = tl.where(behind_one, above, tl.load(pending + row // each)).to(tl.int64)
    here = tl.load(best + row * count + lane, mask=real, other=0).to(tl.int64)
    mix = tl.load(mixed + row * rank + number, mask=inside, other=0.0).to(tl.float32)
    mask = real[:, None] & inside[None, :]
    left = tl.load(before + above[:, None] * rank + number[None, :], mask=mask, other=0.0).to(tl.float32)
    right = tl.load(behind + here[:, None] * rank + number[None, :], mask=mask, other=0.0).to(tl.float32)
    pair = tl.dot(left * mix[None, :], tl.trans(right), input_precision="ieee")
    out = told + row * numbers + 2 * count + lane[:, None] * count + lane[None, :]
    tl.store(out, pair, mask=real[:, None] & real[None, :])


def best_candidates(logits: Tensor, names: Tensor | None, best: Tensor, told: Tensor) -> None:
    """The `count` best of each row of `logits` float32 [R, V], best first: `best` int32 [R, count] and `told`.

    `told` float32 [R, N] begins with their ids and their logits. `names` int32 [V] are the ids of columns; None: their
    places. NaN and -inf count as -3e38; V is at least `count`.
    """
    rows, width = logits.shape
    count, parts = best.shape[1], triton.cdiv(width, PART)
    values = logits.new_empty((rows, parts * count))
    places = best.new_empty((rows, parts * count))
    _best_of_parts[(rows, parts)](logits, values, places, width, count, PART, num_warps=4, **follow(best))
    _best[(rows,)](
        values, places, best if names is None else names, best, told, parts * count, told.shape[1], count,
        names is not None, triton.next_power_of_2(parts * count), num_warps=4, **follow(best),
    )  # fmt: skip


def score_pairs(
    best: Tensor, pending: Tensor, mixed: Tensor, before: Tensor, behind: Tensor, each: int, told: Tensor
) -> None:
    """Scores of candidates behind those of the position before, into `told` [R, N] behind ids and logits.

    The pair (p, c) of row r is the sum over k of before[p, k] mixed[r, k] behind[c, k]. `each` rows make a block, whose
    first stand behind `pending` int32 [B]. `mixed` [R, K]; `before` and `behind` [V, K].
    """
    rows, count = best.shape
    rank = mixed.shape[1]
    _pairs[(rows,)](
        best, pending, mixed, before, behind, told, rank, told.shape[1], each, count,
        max(16, triton.next_power_of_2(count)), max(16, triton.next_power_of_2(rank)), num_warps=4, **follow(told),
    )  # fmt: skip
