# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Routers: float32 logits of a row against bf16 weights, and its best experts; of equals the lower id is better."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow

Tensor = Any


@triton.jit
def _logits(x, weight, out, width, experts, most: tl.constexpr, block: tl.constexpr, early: tl.constexpr):
    begin(early)
    row = tl.program_id(0).to(tl.int64)
    expert = tl.program_id(1) * most + tl.arange(0, most)
    real = expert < experts
    partial = tl.zeros([most, block], tl.float32)
    for start in range(0, width, block):
        place = start + tl.arange(0, block)
        inside = place < width
        value = tl.load(x + row * width + place, mask=inside, other=0.0).to(tl.float32)
        learnt = tl.load(
            weight + expert[:, None] * width + place[None, :], mask=real[:, None] & inside[None, :], other=0.0
        ).to(tl.float32)
        partial += learnt * value[None, :]
    tl.store(out + row * experts + expert, tl.sum(partial, 1), mask=real)


@triton.jit
def _choose(
    logits, correction, ids, weights, experts, count, slots, scale,
    softmax: tl.constexpr, over_chosen: tl.constexpr, normalize: tl.constexpr, corrected: tl.constexpr,
    most: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, most)
    real = expert < experts
    logit = tl.load(logits + row * experts + expert, mask=real, other=float("-inf"))
    raised = tl.exp(logit - tl.max(logit, 0))
    if softmax:
        score = raised / tl.sum(raised, 0)
    else:
        score = 1.0 / (1.0 + tl.exp(-logit))
    ranked = score
    if corrected:
        ranked += tl.load(correction + expert, mask=real, other=0.0)
    ranked = tl.where(real, ranked, float("-inf"))
    value = raised if over_chosen else score
    total = 0.0
    if normalize or over_chosen:  # once for the sum, in the order of choice, and once to write
        left = ranked
        for _ in range(count):
            chosen = tl.min(tl.where(left == tl.max(left, 0), expert, most), 0)
            total += tl.sum(tl.where(expert == chosen, value, 0.0), 0)
            left = tl.where(expert == chosen, float("-inf"), left)
        total += 1e-20
    else:
        total += 1.0
    for i in range(count):
        chosen = tl.min(tl.where(ranked == tl.max(ranked, 0), expert, most), 0)
        share = tl.sum(tl.where(expert == chosen, value, 0.0), 0)
        tl.store(ids + row * slots + i, tl.minimum(chosen, experts - 1))  # NaN is equal to nothing
        tl.store(weights + row * slots + i, share / total * scale)
        ranked = tl.where(expert == chosen, float("-inf"), ranked)
    for i in range(count, slots):
        tl.store(ids + row * slots + i, experts + i - count)
        tl.store(weights + row * slots + i, 1.0)


def score_rows(x: Tensor, weight: Tensor, logits: Tensor) -> None:
    """`logits` float32 [R, E] of rows [R, D] and `weight` [E, D]: one chain a row, whatever R is."""
    rows, width = x.shape
    experts = weight.shape[0]
    _logits[(rows, triton.cdiv(experts, 4))](x, weight, logits, width, experts, 4, 512, num_warps=4, **follow(logits))


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
    slots, most = ids.shape[1], triton.next_power_of_2(experts)
    corrected = correction is not None
    _choose[(rows,)](
        logits, correction if corrected else logits, ids, weights, experts, chosen or slots, slots, scale,
        scoring == "softmax", over_chosen, normalize, corrected, most, num_warps=1, **follow(ids),
    )  # fmt: skip


def route_rows(
    x: Tensor, weight: Tensor, correction: Tensor | None, logits: Tensor, ids: Tensor, weights: Tensor, scale: float
) -> None:
    """`choose_rows` by sigmoid scores of rows [R, D], whose `logits` float32 [R, E] are scratch."""
    score_rows(x, weight, logits)
    choose_rows(logits, correction, ids, weights, scale)
