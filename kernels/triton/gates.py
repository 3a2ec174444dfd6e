# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""The norm and the gate behind a recurrence: each row and group reduced whole in one fixed layout.

A decoded row's groups have a program each. A prompt's rows are taken some at a time, in a layout of their own: their
bits are others, and know neither the span nor a row's place in it.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import follow, let_next, wait_before

Tensor = Any  # a torch tensor


@triton.jit
def _gated_norm(
    mixed, gate, gate_stride, weight, out, width, groups, eps, gate_first: tl.constexpr, silu: tl.constexpr,
    block: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    row, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = tl.arange(0, block)
    inside = place < width
    if gate_first:  # the weight spans all groups
        learnt = tl.load(weight + group * width + place, mask=inside, other=0.0).to(tl.float32)
    else:  # every group, a head, shares the weight
        learnt = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    share = 1.0 / width
    wait_before(early)
    at = (row * groups + group) * width + place
    value = tl.load(mixed + at, mask=inside, other=0.0).to(tl.float32)
    z = tl.load(gate + row * gate_stride + group * width + place, mask=inside, other=0.0).to(tl.float32)
    opened = 1.0 / (1.0 + tl.exp(-z))
    if silu:
        opened = opened * z
    if gate_first:
        value *= opened
    result = value * tl.rsqrt(tl.sum(value * value, 0) * share + eps) * learnt
    if not gate_first:
        result *= opened
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated_norm_span(
    mixed, gate, gate_stride, weight, out, count, width, groups, eps, gate_first: tl.constexpr, silu: tl.constexpr,
    tile: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    rows, group = tl.program_id(0).to(tl.int64) * tile + tl.arange(0, tile), tl.program_id(1)
    place = tl.arange(0, block)
    inside = place < width
    here = (rows < count)[:, None] & inside[None, :]
    at = (rows * groups + group)[:, None] * width + place[None, :]
    value = tl.load(mixed + at, mask=here, other=0.0).to(tl.float32)
    z = tl.load(gate + (rows * gate_stride + group * width)[:, None] + place[None, :], mask=here, other=0.0)
    z = z.to(tl.float32)
    learnt = tl.load(weight + (group * width if gate_first else 0) + place, mask=inside, other=0.0).to(tl.float32)
    opened = 1.0 / (1.0 + tl.exp(-z))
    if silu:
        opened = opened * z
    if gate_first:
        value *= opened
    scale = tl.rsqrt(tl.sum(value * value, 1) * (1.0 / width) + eps)
    result = value * scale[:, None] * learnt[None, :]
    if not gate_first:
        result *= opened
    tl.store(out + at, result.to(out.dtype.element_ty), mask=here)


def gated_norm(
    mixed: Tensor, gate: Tensor, weight: Tensor, out: Tensor, groups: int, eps: float, *, gate_first: bool,
    silu: bool = True,
) -> None:  # fmt: skip
    """Rows [R, groups * W] normed in groups, opened by silu or sigmoid of `gate` before (Mamba-2) or behind the norm.

    `gate` may be columns of wider rows. `weight` is [groups * W] when the gate comes first, else [W] for every group.
    """
    rows, width = mixed.shape[0], mixed.shape[1] // groups
    block = triton.next_power_of_2(width)
    _gated_norm[(rows, groups)](
        mixed, gate, gate.stride(0), weight, out, width, groups, eps, gate_first, silu, block,
        num_warps=1 if block <= 128 else 4, enable_fp_fusion=True, **follow(out),
    )  # fmt: skip


def gated_norm_span(
    mixed: Tensor, gate: Tensor, weight: Tensor, out: Tensor, groups: int, eps: float, *, gate_first: bool,
    silu: bool = True,
) -> None:  # fmt: skip
    """The same for a prompt's rows."""
    rows, width = mixed.shape[0], mixed.shape[1] // groups
    block = triton.next_power_of_2(width)
    tile = max(1, 2048 // block)
    _gated_norm_span[(triton.cdiv(rows, tile), groups)](
        mixed, gate, gate.stride(0), weight, out, rows, width, groups, eps, gate_first, silu, tile, block, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip
