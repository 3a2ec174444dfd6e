# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Mamba-2 over a prompt's span, 64 positions at a time (Transformers are SSMs, arXiv 2405.21060, the block form).

Within a block, with g the running sum of A dt and S the state before it:

    Y = W X + diag(e^g) C S^T + skip X,   W[i, j] = e^(g_i - g_j) dt_j (C_i . B_j)  for j <= i
    S <- e^g_last S + (diag(dt e^(g_last - g)) X)^T B

A program walks the blocks in order with a slice of one head's state in registers, held as [N, P]. Blocks are counted
from the span's start. Sums are float32; operands of products have the dtype of `mixed`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

Tensor = Any  # a torch tensor
BLOCK = 64


@triton.jit
def _walk(
    state, mixed, steps, rate, skip, out, count, channels, heads, groups, blocks, width: tl.constexpr,
    size: tl.constexpr, part: tl.constexpr, block: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    slice_, head = tl.program_id(0), tl.program_id(1)
    deep, wide = tl.arange(0, size), slice_ * part + tl.arange(0, part)
    place = tl.arange(0, block)
    kind = mixed.dtype.element_ty
    inner = (head * width + wide[None, :]) * size + deep[:, None]
    now = tl.load(state + inner)
    group = head // (heads // groups)
    fade = tl.load(rate + head)
    straight = tl.load(skip + head)
    row, column = place[:, None], place[None, :]
    for number in tl.range(0, blocks, num_stages=stages):
        rows = (number * block + place).to(tl.int64)
        there = rows < count
        at = mixed + rows[:, None] * channels
        x = tl.load(at + (head * width + wide)[None, :], mask=there[:, None], other=0.0)
        shared = heads * width + group * size + deep
        into = tl.load(at + shared[None, :], mask=there[:, None], other=0.0)
        out_of = tl.load(at + (groups * size + shared)[None, :], mask=there[:, None], other=0.0)
        dt = tl.load(steps + rows * heads + head, mask=there, other=0.0)
        sums = tl.cumsum(fade * dt, 0)
        last = tl.sum(tl.where(place == block - 1, sums, 0.0), 0)
        kept = tl.exp(tl.where(row >= column, sums[:, None] - sums[None, :], 0.0)) * dt[None, :]
        mix = tl.where(row >= column, tl.dot(out_of, tl.trans(into)) * kept, 0.0)
        result = tl.dot(out_of, now.to(kind)) * tl.exp(sums)[:, None]
        result = tl.dot(mix.to(kind), x, result)
        # A float32 copy of x scaled, so that the skip and the state read the same numbers.
        plain = x.to(tl.float32)
        left = (plain * (dt * tl.exp(last - sums))[:, None]).to(kind)
        now = tl.dot(tl.trans(into), left, now * tl.exp(last))
        to = out + (rows[:, None] * heads + head) * width + wide[None, :]
        tl.store(to, (result + straight * plain).to(out.dtype.element_ty), mask=there[:, None])
    tl.store(state + inner, now)


def mamba2_scan(
    state: Tensor, mixed: Tensor, steps: Tensor, rate: Tensor, skip: Tensor, out: Tensor, groups: int, *,
    part: int = 32, stages: int = 1, warps: int = 2,
) -> None:  # fmt: skip
    """Mamba-2 over T rows of one lane.

    `state` float32 [H, P, N] is read and becomes the one behind the rows; `mixed` [T, H * P + 2 * groups * N] and
    `steps` float32 [T, H] as `conv.mamba2_span` leaves them; `rate` (-exp(A)) and `skip` float32 [H]; `out` [T, H, P].
    `part` and `warps` decide bits; with 2 warps no warpgroup products are taken, which Triton 3.6 gets wrong in loops
    that it does not pipeline (see `delta_scan`).
    """
    heads, width, size = state.shape
    count, channels = mixed.shape
    part = min(part, width)
    _walk[(width // part, heads)](
        state, mixed, steps, rate, skip, out, count, channels, heads, groups, triton.cdiv(count, BLOCK), width, size,
        part, BLOCK, stages, num_warps=warps, enable_fp_fusion=True,
    )  # fmt: skip
