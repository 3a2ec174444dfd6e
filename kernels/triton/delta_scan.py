# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""The gated delta rule over a prompt's span, 64 positions at a time (Gated Delta Networks, arXiv 2412.06464).

Within a block of 64 rows, with g the running sum of the logs of what is kept and S the state before the block:

    A[i, j] = beta_i e^(g_i - g_j) (k_i . k_j)  for j < i      what row i's correction reads of row j's
    D = (I + A)^-1 diag(beta)                                   all corrections of the block at once:
    U = D (V - diag(e^g) K S)
    Y = diag(e^g) Q S + P U,   P[i, j] = e^(g_i - g_j) (q_i . k_j)  for j <= i
    S <- e^g_last S + (diag(e^(g_last - g)) K)^T U

A first kernel makes D and P of every block and head; a second one walks the blocks in order with a slice of the state
in registers, transposed. (I + A)^-1 is doubled from the diagonal: of blocks X over Y with B below, the inverse holds
-Y^-1 B X^-1. No power of A is taken, since keys that are alike would make its powers overflow.

Blocks are counted from the span's start, so a row's bits follow from where the span begins. Sums are float32; operands
of products have the dtype of `mixed`, and keys enter them as the convolution left them, their scales applied outside.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

Tensor = Any  # a torch tensor
BLOCK, WARPGROUP = 64, 64  # rows of a block, and those from which a product is a warpgroup's


@triton.jit
def _doubled(made, below, row, column, half: tl.constexpr, precision: tl.constexpr):
    """Inverses of diagonal blocks of twice `half` from those of `half`."""
    part = (row // (2 * half) == column // (2 * half)) & (row // half > column // half)
    left = tl.dot(made, tl.where(part, below, 0.0), input_precision=precision)
    return made - tl.dot(left, made, input_precision=precision)


@triton.jit
def _inverse(below, row, column, precision: tl.constexpr):
    """(I + below)^-1 of a strictly lower triangular matrix [64, 64]."""
    # Blocks of 2 have the plain negative below their diagonal.
    near = (row // 2 == column // 2) & (row > column)
    made = tl.where(row == column, 1.0, tl.where(near, -below, 0.0))
    for doubling in tl.static_range(1, 6):
        made = _doubled(made, below, row, column, 1 << doubling, precision)
    return made


@triton.jit
def _parts(
    mixed, gates, corrections, reads, scales, count, channels, heads, key_heads, key_width: tl.constexpr,
    block: tl.constexpr, precision: tl.constexpr,
):  # fmt: skip
    number, head = tl.program_id(0), tl.program_id(1)
    place = tl.arange(0, block)
    rows = (number * block + place).to(tl.int64)
    there = rows < count
    of = gates + (rows * heads + head) * 4
    sums = tl.cumsum(tl.load(of, mask=there, other=0.0), 0)
    beta = tl.load(of + 1, mask=there, other=0.0)
    scale_k = tl.load(of + 2, mask=there, other=0.0)
    scale_q = tl.load(of + 3, mask=there, other=0.0)
    last = tl.sum(tl.where(place == block - 1, sums, 0.0), 0)
    keys = tl.arange(0, key_width)
    key_head = head // (heads // key_heads)
    at = mixed + rows[:, None] * channels + key_head * key_width + keys[None, :]
    q = tl.load(at, mask=there[:, None], other=0.0)
    k = tl.load(at + key_heads * key_width, mask=there[:, None], other=0.0)
    row, column = place[:, None], place[None, :]
    kept = tl.exp(tl.where(row >= column, sums[:, None] - sums[None, :], 0.0)) * scale_k[None, :]
    alike = tl.dot(k, tl.trans(k)) * kept * (beta * scale_k)[:, None]
    made = _inverse(tl.where(row > column, alike, 0.0), row, column, precision) * beta[None, :]
    asked = tl.where(row >= column, tl.dot(q, tl.trans(k)) * kept * scale_q[:, None], 0.0)
    tile = (number * heads + head).to(tl.int64) * block
    to = (tile + row) * block + column
    kind = corrections.dtype.element_ty
    tl.store(corrections + to, made.to(kind))
    tl.store(reads + to, asked.to(kind))
    scaled = scales + (tile + place) * 4
    tl.store(scaled, tl.exp(sums) * scale_k)
    tl.store(scaled + 1, tl.exp(sums) * scale_q)
    tl.store(scaled + 2, tl.exp(last - sums) * scale_k)
    tl.store(scaled + 3, tl.zeros_like(sums) + tl.exp(last))


@triton.jit
def _walk(
    state, mixed, corrections, reads, scales, out, count, channels, heads, key_heads, blocks, key_width: tl.constexpr,
    value_width: tl.constexpr, part: tl.constexpr, block: tl.constexpr, stages: tl.constexpr,
):  # fmt: skip
    slice_, head = tl.program_id(0), tl.program_id(1)
    keys, values = tl.arange(0, key_width), slice_ * part + tl.arange(0, part)
    place = tl.arange(0, block)
    kind = mixed.dtype.element_ty
    inner = (head * key_width + keys[None, :]) * value_width + values[:, None]
    now = tl.load(state + inner)
    key_head = head // (heads // key_heads)
    for number in tl.range(0, blocks, num_stages=stages):
        rows = (number * block + place).to(tl.int64)
        there = rows < count
        at = mixed + rows[:, None] * channels
        q = tl.load(at + key_head * key_width + keys[None, :], mask=there[:, None], other=0.0)
        k = tl.load(at + (key_heads + key_head) * key_width + keys[None, :], mask=there[:, None], other=0.0)
        column = 2 * key_heads * key_width + head * value_width + values
        v = tl.load(mixed + rows[None, :] * channels + column[:, None], mask=there[None, :], other=0.0)
        tile = (number * heads + head).to(tl.int64) * block
        square = (tile + place[:, None]) * block + place[None, :]
        correct = tl.load(corrections + square)
        read = tl.load(reads + square)
        scaled = scales + (tile + place) * 4
        seen_by, asked_by, left_by = tl.load(scaled), tl.load(scaled + 1), tl.load(scaled + 2)
        kept = tl.load(scales + tile * 4 + 3)
        before = now.to(kind)
        missing = v.to(tl.float32) - tl.dot(before, tl.trans(k)) * seen_by[None, :]
        change = tl.dot(missing.to(kind), tl.trans(correct))
        result = tl.dot(before, tl.trans(q)) * asked_by[None, :]
        result = tl.dot(change.to(kind), tl.trans(read), result)
        now = tl.dot((change * left_by[None, :]).to(kind), k, now * kept)
        to = out + (rows[None, :] * heads + head) * value_width + values[:, None]
        tl.store(to, result.to(out.dtype.element_ty), mask=there[None, :])
    tl.store(state + inner, now)


def delta_parts(
    mixed: Tensor, gates: Tensor, key_heads: int, key_width: int, *, precision: str = "tf32", warps: int = 4
) -> tuple[Tensor, Tensor, Tensor]:
    """D and P of every block and head, [B, H, 64, 64] of `mixed`'s dtype, and four scales of its rows, [B, H, 64, 4].

    `mixed` [T, C] and `gates` float32 [T, H, 4] as `conv.delta_span` leaves them.
    """
    count, channels = mixed.shape
    heads, blocks = gates.shape[1], triton.cdiv(count, BLOCK)
    corrections, reads = (mixed.new_empty((blocks, heads, BLOCK, BLOCK)) for _ in range(2))
    scales = gates.new_empty((blocks, heads, BLOCK, 4))
    _parts[(blocks, heads)](
        mixed, gates, corrections, reads, scales, count, channels, heads, key_heads, key_width, BLOCK, precision,
        num_warps=warps, enable_fp_fusion=True,
    )  # fmt: skip
    return corrections, reads, scales


def delta_walk(
    state: Tensor, mixed: Tensor, parts: tuple[Tensor, Tensor, Tensor], out: Tensor, key_heads: int, *, part: int = 32,
    stages: int = 2, warps: int = 4,
) -> None:  # fmt: skip
    """Results `out` [T, H, V] and the state behind the rows, from the parts of all blocks.

    A program's slice of the state is held as [part, K], so that every product has `part` rows. With 64 rows and 4 warps
    Triton 3.6 takes warpgroup products on sm_90, and a loop of them that it does not pipeline gives wrong results (seen
    on an H200); 32 rows take none. `part` and `warps` decide bits.
    """
    assert part < WARPGROUP
    heads, key_width, value_width = state.shape
    count, channels = mixed.shape
    part = min(part, value_width)
    _walk[(value_width // part, heads)](
        state, mixed, *parts, out, count, channels, heads, key_heads, triton.cdiv(count, BLOCK), key_width, value_width,
        part, BLOCK, stages, num_warps=warps, enable_fp_fusion=True,
    )  # fmt: skip


def delta_scan(state: Tensor, mixed: Tensor, gates: Tensor, out: Tensor, key_heads: int) -> None:
    """Gated delta rule over T rows of one lane.

    `state` float32 [H, K, V] is read and becomes the one behind the rows; `mixed` [T, 2 * key_heads * K + H * V] and
    `gates` float32 [T, H, 4] as `conv.delta_span` leaves them; `out` [T, H, V]. Scratch: 272 T H bytes beside 2-byte
    rows.
    """
    parts = delta_parts(mixed, gates, key_heads, state.shape[1])
    delta_walk(state, mixed, parts, out, key_heads)
