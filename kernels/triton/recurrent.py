# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Recurrent steps by a schedule: the gated delta rule, Mamba-2, and the short convolution before them.

A window never writes the state that it makes. Its inputs stay in a ring, and the next window's schedule begins by
replaying those that were kept. Replayed and new rows go through one loop with one body, so that they cannot differ.

A schedule is a list of steps per lane, int32 [lanes, steps, 3]: the ring row whose inputs are taken, the row of `out`
that gets the result (-1: none), and flags. RESET starts again from the committed state, which is how a branch of a tree
begins; COMMIT makes the state behind this step the committed one.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

Tensor = Any
RESET, COMMIT = 1, 2


@triton.jit
def _delta(
    state, mixed, decay, beta, schedule, counts, out, most_steps, heads, key_heads, channels, ring, eps,
    key_width: tl.constexpr, value_width: tl.constexpr, part: tl.constexpr,
):  # fmt: skip
    head, slice_, lane = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    keys, values = tl.arange(0, key_width), slice_ * part + tl.arange(0, part)
    at = ((lane * heads + head) * key_width + keys[:, None]) * value_width + values[None, :]
    base = tl.load(state + at)
    now = base
    key_head = head // (heads // key_heads)
    steps = tl.load(counts + lane)
    for i in range(steps):
        step = schedule + (lane * most_steps + i) * 3
        source, target, flags = tl.load(step), tl.load(step + 1), tl.load(step + 2)
        now = tl.where((flags & 1) != 0, base, now)
        row = lane * ring + source
        q = tl.load(mixed + row * channels + key_head * key_width + keys).to(tl.float32)
        k = tl.load(mixed + row * channels + (key_heads + key_head) * key_width + keys).to(tl.float32)
        v = tl.load(mixed + row * channels + 2 * key_heads * key_width + head * value_width + values).to(tl.float32)
        q = q * (1.0 / tl.sqrt(tl.sum(q * q, 0) + eps)) * (key_width**-0.5)
        k = k * (1.0 / tl.sqrt(tl.sum(k * k, 0) + eps))
        now = now * tl.exp(tl.load(decay + row * heads + head))
        change = tl.load(beta + row * heads + head) * (v - tl.sum(now * k[:, None], 0))
        now = now + k[:, None] * change[None, :]
        result = tl.sum(now * q[:, None], 0)
        to = out + (tl.maximum(target, 0).to(tl.int64) * heads + head) * value_width + values
        tl.store(to, result.to(out.dtype.element_ty), mask=values < tl.where(target >= 0, value_width, 0))
        kept = (flags & 2) != 0
        base = tl.where(kept, now, base)
        if kept:
            tl.store(state + at, now)


@triton.jit
def _mamba2(
    state, mixed, step_sizes, decay_log, skip, schedule, counts, out, most_steps, heads, groups, channels, ring,
    width: tl.constexpr, size: tl.constexpr,
):  # fmt: skip
    head, lane = tl.program_id(0), tl.program_id(1).to(tl.int64)
    wide, deep = tl.arange(0, width), tl.arange(0, size)
    at = ((lane * heads + head) * width + wide[:, None]) * size + deep[None, :]
    base = tl.load(state + at)
    now = base
    group = head // (heads // groups)
    rate = -tl.exp(tl.load(decay_log + head).to(tl.float32))
    straight = tl.load(skip + head).to(tl.float32)
    steps = tl.load(counts + lane)
    for i in range(steps):
        step = schedule + (lane * most_steps + i) * 3
        source, target, flags = tl.load(step), tl.load(step + 1), tl.load(step + 2)
        now = tl.where((flags & 1) != 0, base, now)
        row = lane * ring + source
        x = tl.load(mixed + row * channels + head * width + wide).to(tl.float32)
        into = tl.load(mixed + row * channels + heads * width + group * size + deep).to(tl.float32)
        out_of = tl.load(mixed + row * channels + heads * width + (groups + group) * size + deep).to(tl.float32)
        dt = tl.load(step_sizes + row * heads + head)
        now = now * tl.exp(rate * dt) + (dt * x)[:, None] * into[None, :]
        result = tl.sum(now * out_of[None, :], 1) + straight * x
        to = out + (tl.maximum(target, 0).to(tl.int64) * heads + head) * width + wide
        tl.store(to, result.to(out.dtype.element_ty), mask=wide < tl.where(target >= 0, width, 0))
        kept = (flags & 2) != 0
        base = tl.where(kept, now, base)
        if kept:
            tl.store(state + at, now)


@triton.jit
def _conv(rows, taps, weight, bias, out, channels, has_bias: tl.constexpr, block: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    inside = place < channels
    total = tl.zeros([block], tl.float32)
    if has_bias:
        total += tl.load(bias + place, mask=inside, other=0.0).to(tl.float32)
    for tap in tl.static_range(4):
        source = tl.load(taps + row * 4 + tap).to(tl.int64)
        there = place < tl.where(source >= 0, channels, 0)
        value = tl.load(rows + source * channels + place, mask=there, other=0.0).to(tl.float32)
        total += value * tl.load(weight + place * 4 + tap, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * channels + place, (total / (1.0 + tl.exp(-total))).to(out.dtype.element_ty), mask=inside)


def delta_rows(
    state: Tensor, mixed: Tensor, decay: Tensor, beta: Tensor, schedule: Tensor, counts: Tensor, out: Tensor,
    key_heads: int, eps: float,
) -> None:  # fmt: skip
    """Gated delta steps of every lane by its schedule.

    `state` float32 [lanes, H, K, V]; `mixed` [lanes, ring, 2 * key_heads * K + H * V] as the convolution leaves it;
    `decay` (the log of what is kept) and `beta` float32 [lanes, ring, H]; `counts` int32 [lanes]; `out` [rows, H, V].
    """
    lanes, heads, key_width, value_width = state.shape
    part = min(32, value_width)
    _delta[(heads, value_width // part, lanes)](
        state, mixed, decay, beta, schedule, counts, out, schedule.shape[1], heads, key_heads, mixed.shape[2],
        mixed.shape[1], eps, key_width, value_width, part, num_warps=4,
    )  # fmt: skip


def mamba2_rows(
    state: Tensor, mixed: Tensor, step_sizes: Tensor, decay_log: Tensor, skip: Tensor, schedule: Tensor,
    counts: Tensor, out: Tensor, groups: int,
) -> None:  # fmt: skip
    """Mamba-2 steps of every lane by its schedule.

    `state` float32 [lanes, H, P, N]; `mixed` [lanes, ring, H * P + 2 * groups * N]; `step_sizes` float32
    [lanes, ring, H], behind their softplus; `decay_log` and `skip` [H]; `out` [rows, H, P].
    """
    lanes, heads, width, size = state.shape
    _mamba2[(heads, lanes)](
        state, mixed, step_sizes, decay_log, skip, schedule, counts, out, schedule.shape[1], heads, groups,
        mixed.shape[2], mixed.shape[1], width, size, num_warps=8,
    )  # fmt: skip


def conv_rows(rows: Tensor, taps: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """silu of a causal convolution of four rows: tap j of row r reads `rows[taps[r, j]]`, the newest last.

    `rows` [T, C] holds tails and windows alike; `taps` int32 [R, 4], -1 for a row before the first; `weight` [C, 4];
    `out` [R, C]. A branch of a tree names its own ancestors.
    """
    count, channels = out.shape
    learnt = weight if bias is None else bias
    _conv[(count, triton.cdiv(channels, 1024))](
        rows, taps, weight, learnt, out, channels, bias is not None, 1024, num_warps=4
    )
