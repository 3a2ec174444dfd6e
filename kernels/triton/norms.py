# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""RMS norm fused with the residual sum, and gates: one program a row, a row reduced whole and in one fixed layout.

Sums are float32; what is written is rounded once. A row's layout follows its width alone.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow, let_next, wait_before

Tensor = Any  # a torch tensor on the device


@triton.jit
def _add_norm(
    x, residual, weight, out, total, width, eps, has_residual: tl.constexpr, block: tl.constexpr, early: tl.constexpr
):
    let_next(early)
    row = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, block)
    inside = place < width
    learnt = tl.load(weight + place, mask=inside, other=0.0).to(tl.float32)
    share = 1.0 / width
    wait_before(early)
    value = tl.load(x + row * width + place, mask=inside, other=0.0).to(tl.float32)
    if has_residual:
        value += tl.load(residual + row * width + place, mask=inside, other=0.0).to(tl.float32)
        rounded = value.to(total.dtype.element_ty)
        tl.store(total + row * width + place, rounded, mask=inside)
        value = rounded.to(tl.float32)  # the norm reads what later layers will read
    scale = tl.rsqrt(tl.sum(value * value, 0) * share + eps)
    tl.store(out + row * width + place, (value * scale * learnt).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gated_silu(both, out, width, block: tl.constexpr, early: tl.constexpr):
    begin(early)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    inside = place < width
    gate = tl.load(both + row * 2 * width + place, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * width + width + place, mask=inside, other=0.0).to(tl.float32)
    opened = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * width + place, opened.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _squared_relu(x, out, width, block: tl.constexpr, early: tl.constexpr):
    begin(early)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    inside = place < width
    value = tl.maximum(tl.load(x + row * width + place, mask=inside, other=0.0).to(tl.float32), 0.0)
    tl.store(out + row * width + place, (value * value).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _combine(pairs, weights, out, width, slots, block: tl.constexpr, early: tl.constexpr):
    begin(early)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    inside = place < width
    total = tl.zeros([block], tl.float32)
    for slot in range(slots):
        value = tl.load(pairs + (row * slots + slot) * width + place, mask=inside, other=0.0).to(tl.float32)
        total += tl.load(weights + row * slots + slot) * value
    tl.store(out + row * width + place, total.to(out.dtype.element_ty), mask=inside)


def _warps(block: int) -> int:
    """Warps of a norm: 16 numbers a thread, two loads of 16 bytes, so that a row is one short piece of code."""
    return max(1, min(32, block // 512))


def add_norm(x: Tensor, residual: Tensor | None, weight: Tensor, out: Tensor, total: Tensor, eps: float) -> None:
    """`out` [R, K] = RMS norm of x + residual times `weight` [K]; `total` gets the sum, when there is a residual."""
    rows, width = x.shape
    block = triton.next_power_of_2(width)
    other = x if residual is None else residual
    _add_norm[(rows,)](
        x, other, weight, out, total, width, eps, residual is not None, block, num_warps=_warps(block), **follow(out)
    )


def gated_silu(both: Tensor, out: Tensor) -> None:
    """`out` [R, F] = silu(gate) * up of rows [R, 2 F] that hold the gate first."""
    rows, width = out.shape
    _gated_silu[(rows, triton.cdiv(width, 1024))](both, out, width, 1024, num_warps=8, **follow(out))


def squared_relu(x: Tensor, out: Tensor) -> None:
    """`out` [R, F] = max(x, 0) squared."""
    rows, width = out.shape
    _squared_relu[(rows, triton.cdiv(width, 1024))](x, out, width, 1024, num_warps=4, **follow(out))


def combine(pairs: Tensor, weights: Tensor, out: Tensor) -> None:
    """`out` [R, D] = the weighted sum of a row's experts `pairs` [R * k, D], slot after slot; `weights` is [R, k]."""
    rows, width = out.shape
    _combine[(rows, triton.cdiv(width, 512))](
        pairs, weights, out, width, weights.shape[1], 512, num_warps=4, **follow(out)
    )
