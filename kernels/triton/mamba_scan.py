# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Mamba-2 over a prompt's span, 64 positions at a time (Transformers are SSMs, arXiv 2405.21060, the block form).

Within a block, with g the running sum of A dt and S the state before it:

    Y = W X + diag(e^g) C S^T + skip X,   W[i, j] = e^(g_i - g_j) dt_j (C_i . B_j)  for j <= i
    S <- e^g_last S + (diag(dt e^(g_last - g)) X)^T B

A first kernel makes C_i . B_j of every block and group, which the heads of a group share; a second one walks the blocks
in order with a slice of one head's state in registers. Blocks are counted from the span's start. Sums are float32;
operands of products have the dtype of `mixed`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.delta_scan import BLOCK, WARPGROUP

Tensor = Any  # a torch tensor


@triton.jit
def _alike(mixed, scores, count, channels, heads, groups, width, size: tl.constexpr, block: tl.constexpr):
    number, group = tl.program_id(0), tl.program_id(1)
    place, deep = tl.arange(0, block), tl.arange(0, size)
    rows = (number * block + place).to(tl.int64)
    there = (rows < count)[:, None]
    at = mixed + rows[:, None] * channels + heads * width + group * size + deep[None, :]
    into = tl.load(at, mask=there, other=0.0)
    out_of = tl.load(at + groups * size, mask=there, other=0.0)
    tile = (number * groups + group).to(tl.int64) * block
    tl.store(scores + (tile + place[:, None]) * block + place[None, :], tl.dot(into, tl.trans(out_of)))


@triton.jit
def _walk(
    state, mixed, scores, steps, rate, skip, out, count, channels, heads, groups, blocks, width: tl.constexpr,
    size: tl.constexpr, part: tl.constexpr, block: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    slice_, head = tl.program_id(0), tl.program_id(1)
    deep, wide = tl.arange(0, size), slice_ * part + tl.arange(0, part)
    place = tl.arange(0, block)
    kind = mixed.dtype.element_ty
    inner = (head * width + wide[:, None]) * size + deep[None, :]
    now = tl.load(state + inner)
    group = head // (heads // groups)
    fade = tl.load(rate + head)
    straight = tl.load(skip + head)
    earlier, row = place[:, None], place[None, :]
    for number in tl.range(0, blocks, num_stages=stages):
        rows = (number * block + place).to(tl.int64)
        there = rows < count
        x = tl.load(mixed + rows[None, :] * channels + (head * width + wide)[:, None], mask=there[None, :], other=0.0)
        at = mixed + rows[:, None] * channels + heads * width + group * size + deep[None, :]
        into = tl.load(at, mask=there[:, None], other=0.0)
        out_of = tl.load(at + groups * size, mask=there[:, None], other=0.0)
        score = tl.load(scores + ((number * groups + group).to(tl.int64) * block + earlier) * block + row)
        dt = tl.load(steps + rows * heads + head, mask=there, other=0.0)
        sums = tl.cumsum(fade * dt, 0)
        last = tl.sum(tl.where(place == block - 1, sums, 0.0), 0)
        kept = tl.exp(tl.where(earlier <= row, sums[None, :] - sums[:, None], 0.0)) * dt[:, None]
        mix = tl.where(earlier <= row, score * kept, 0.0)
        result = tl.dot(now.to(kind), tl.trans(out_of)) * tl.exp(sums)[None, :]
        result = tl.dot(x, mix.to(kind), result)
        # A float32 copy of x scaled, so that the skip and the state read the same numbers.
        plain = x.to(tl.float32)
        left = (plain * (dt * tl.exp(last - sums))[None, :]).to(kind)
        now = tl.dot(left, into, now * tl.exp(last))
        to = out + (rows[None, :] * heads + head) * width + wide[:, None]
        tl.store(to, (result + straight * plain).to(out.dtype.element_ty), mask=there[None, :])
    tl.store(state + inner, now)


def mamba2_scan(
    state: Tensor, mixed: Tensor, steps: Tensor, rate: Tensor, skip: Tensor, out: Tensor, groups: int, *,
    part: int = 32, stages: int = 2, warps: int = 4,
) -> None:  # fmt: skip
    """Mamba-2 over T rows of one lane.

    `state` float32 [H, P, N] is read and becomes the one behind the rows; `mixed` [T, H * P + 2 * groups * N] and
    `steps` float32 [T, H] as `conv.mamba2_span` leaves them; `rate` (-exp(A)) and `skip` float32 [H]; `out` [T, H, P].
    `part` and `warps` decide bits; products of the walk have `part` rows, too few for a warpgroup's, which Triton 3.6
    gets wrong in loops that it does not pipeline (see `delta_scan`). Scratch: 256 T groups bytes.
    """
    heads, width, size = state.shape
    count, channels = mixed.shape
    part, blocks = min(part, width), triton.cdiv(count, BLOCK)
    assert part < WARPGROUP
    scores = steps.new_empty((blocks, groups, BLOCK, BLOCK))
    _alike[(blocks, groups)](
        mixed, scores, count, channels, heads, groups, width, size, BLOCK, num_warps=4, enable_fp_fusion=True
    )
    _walk[(width // part, heads)](
        state, mixed, scores, steps, rate, skip, out, count, channels, heads, groups, blocks, width, size, part, BLOCK,
        stages, num_warps=warps, enable_fp_fusion=True,
    )  # fmt: skip
