# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Mamba-2 over a prompt's span, 64 positions at a time (Transformers are SSMs, arXiv 2405.21060, the block form).

Within a block, with g the running sum of A dt and S the state before it:

    Y = W X + diag(e^g) C S^T + skip X,   W[i, j] = e^(g_i - g_j) dt_j (C_i . B_j)  for j <= i
    S <- e^g_last S + (diag(dt e^(g_last - g)) X)^T B

A first kernel makes W of every block and head; a second one walks the blocks in order with a slice of one head's state
in registers. Blocks are counted from the span's start. Sums are float32; operands of products have the dtype of
`mixed`.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.delta_scan import BLOCK, WARPGROUP

Tensor = Any  # a torch tensor


@triton.jit
def _parts(
    mixed, steps, rate, mixes, scales, count, channels, heads, groups, width, size: tl.constexpr, block: tl.constexpr
):
    number, head = tl.program_id(0), tl.program_id(1)
    place, deep = tl.arange(0, block), tl.arange(0, size)
    rows = (number * block + place).to(tl.int64)
    there = rows < count
    group = head // (heads // groups)
    at = mixed + rows[:, None] * channels + heads * width + group * size + deep[None, :]
    into = tl.load(at, mask=there[:, None], other=0.0)
    out_of = tl.load(at + groups * size, mask=there[:, None], other=0.0)
    dt = tl.load(steps + rows * heads + head, mask=there, other=0.0)
    sums = tl.cumsum(tl.load(rate + head) * dt, 0)
    last = tl.sum(tl.where(place == block - 1, sums, 0.0), 0)
    earlier, row = place[:, None], place[None, :]
    kept = tl.exp(tl.where(earlier <= row, sums[None, :] - sums[:, None], 0.0)) * dt[:, None]
    mix = tl.where(earlier <= row, tl.dot(into, tl.trans(out_of)) * kept, 0.0)
    tile = (number * heads + head).to(tl.int64) * block
    tl.store(mixes + (tile + earlier) * block + row, mix.to(mixes.dtype.element_ty))
    scaled = scales + (tile + place) * 4
    tl.store(scaled, tl.exp(sums))
    tl.store(scaled + 1, dt * tl.exp(last - sums))
    tl.store(scaled + 2, tl.zeros_like(sums) + tl.exp(last))


@triton.jit
def _walk(
    state, mixed, mixes, scales, skip, out, count, channels, heads, groups, blocks, width: tl.constexpr,
    size: tl.constexpr, part: tl.constexpr, block: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    slice_, head = tl.program_id(0), tl.program_id(1)
    deep, wide = tl.arange(0, size), slice_ * part + tl.arange(0, part)
    place = tl.arange(0, block)
    kind = mixed.dtype.element_ty
    inner = (head * width + wide[:, None]) * size + deep[None, :]
    now = tl.load(state + inner)
    group = head // (heads // groups)
    straight = tl.load(skip + head)
    for number in tl.range(0, blocks, num_stages=stages):
        rows = (number * block + place).to(tl.int64)
        there = rows < count
        x = tl.load(mixed + rows[None, :] * channels + (head * width + wide)[:, None], mask=there[None, :], other=0.0)
        at = mixed + rows[:, None] * channels + heads * width + group * size + deep[None, :]
        into = tl.load(at, mask=there[:, None], other=0.0)
        out_of = tl.load(at + groups * size, mask=there[:, None], other=0.0)
        tile = (number * heads + head).to(tl.int64) * block
        mix = tl.load(mixes + (tile + place[:, None]) * block + place[None, :])
        scaled = scales + (tile + place) * 4
        read_by, left_by, kept = tl.load(scaled), tl.load(scaled + 1), tl.load(scales + tile * 4 + 2)
        result = tl.dot(now.to(kind), tl.trans(out_of)) * read_by[None, :]
        result = tl.dot(x, mix, result)
        # A float32 copy of x scaled, so that the skip and the state read the same numbers.
        plain = x.to(tl.float32)
        now = tl.dot((plain * left_by[None, :]).to(kind), into, now * kept)
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
    gets wrong in loops that it does not pipeline (see `delta_scan`). Scratch: 144 T H bytes beside 2-byte rows.
    """
    heads, width, size = state.shape
    count, channels = mixed.shape
    part, blocks = min(part, width), triton.cdiv(count, BLOCK)
    assert part < WARPGROUP
    mixes = mixed.new_empty((blocks, heads, BLOCK, BLOCK))
    scales = steps.new_empty((blocks, heads, BLOCK, 4))
    _parts[(blocks, heads)](
        mixed, steps, rate, mixes, scales, count, channels, heads, groups, width, size, BLOCK, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip
    _walk[(width // part, heads)](
        state, mixed, mixes, scales, skip, out, count, channels, heads, groups, blocks, width, size, part, BLOCK,
        stages, num_warps=warps, enable_fp_fusion=True,
    )  # fmt: skip
