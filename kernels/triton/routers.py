# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Routers: float32 logits of a row against bf16 weights, and its best experts; of equals the lower id is better."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

Tensor = Any


@triton.jit
def _logits(x, weight, out, width, experts, most: tl.constexpr, block: tl.constexpr):
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
def _choose(logits, correction, ids, weights, experts, count, scale, most: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    expert = tl.arange(0, most)
    real = expert < experts
    score = 1.0 / (1.0 + tl.exp(-tl.load(logits + row * experts + expert, mask=real, other=0.0)))
    ranked = tl.where(real, score + tl.load(correction + expert, mask=real, other=0.0), float("-inf"))
    total, left = 0.0, ranked
    for _ in range(count):  # once for the sum, in the order of choice, and once to write
        chosen = tl.min(tl.where(left == tl.max(left, 0), expert, most), 0)
        total += tl.sum(tl.where(expert == chosen, score, 0.0), 0)
        left = tl.where(expert == chosen, float("-inf"), left)
    for i in range(count):
        chosen = tl.min(tl.where(ranked == tl.max(ranked, 0), expert, most), 0)
        share = tl.sum(tl.where(expert == chosen, score, 0.0), 0)
        tl.store(ids + row * count + i, chosen)
        tl.store(weights + row * count + i, share / (total + 1e-20) * scale)
        ranked = tl.where(expert == chosen, float("-inf"), ranked)


def route_rows(
    x: Tensor, weight: Tensor, correction: Tensor, logits: Tensor, ids: Tensor, weights: Tensor, scale: float
) -> None:
    """The `ids` int32 [R, k] and `weights` float32 [R, k] of rows [R, D] by sigmoid scores of `weight` [E, D].

    `logits` float32 [R, E] is scratch. `correction` float32 [E] counts for choosing only; weights are divided by their
    sum, times `scale`.
    """
    rows, width = x.shape
    experts, most = weight.shape[0], triton.next_power_of_2(weight.shape[0])
    _logits[(rows, triton.cdiv(experts, 4))](x, weight, logits, width, experts, 4, 512, num_warps=4)
    _choose[(rows,)](logits, correction, ids, weights, experts, ids.shape[1], scale, most, num_warps=1)
