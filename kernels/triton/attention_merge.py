# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""The second launch of decode attention: a row's partitions are added, whichever units wrote them."""

from __future__ import annotations

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import let_next, wait_before
from tensorfold.kernels.triton.row_plan import launches, partition_range, partition_size


@triton.jit(**launches("lengths"))
def merge_parts(
    most, total, mixed, lengths, gate, out, factor, window, gate_row, gate_head, heads: tl.constexpr,
    groups: tl.constexpr, width: tl.constexpr, windowed: tl.constexpr, parts: tl.constexpr, least: tl.constexpr,
    step: tl.constexpr, gated: tl.constexpr, slice_: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    """A program's dims of one head of a row, gated if asked; its partitions are loaded at once and added in one shape.

    `mixed` has a row's partition i at place i modulo `parts` of its key head.
    """
    let_next(early)
    shared: tl.constexpr = heads // groups
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dim, entry = tl.program_id(2) * slice_ + tl.arange(0, slice_), tl.arange(0, parts)
    length = tl.load(lengths + row)
    size = partition_size(length, window, windowed, parts, step, least)
    low, high = partition_range(length, window, size, windowed)
    there, slot = entry < high - low, (low + entry) % parts if windowed else entry
    at = (row * heads + head) * parts + slot
    # One partition of a key head lies behind another; a launch's rows leave these offsets well within 32 bits.
    each = tl.num_programs(0) * (shared * width)
    mixed += (head // shared * parts).to(tl.int64) * each + (row * shared + head % shared) * width
    mixes = mixed + (slot * each)[:, None] + dim[None, :]
    inside = dim < width
    wait_before(early)
    top = tl.load(most + at, mask=there, other=float("-inf"))
    sums = tl.load(total + at, mask=there, other=0.0)
    mix = tl.load(mixes, mask=there[:, None] & inside[None, :], other=0.0)
    highest = tl.max(top, 0)
    share = tl.exp2((top - tl.where(highest == float("-inf"), 0.0, highest)) * factor)
    weights = tl.sum(share * sums, 0)
    if gated:
        opened = tl.load(gate + row * gate_row + head * gate_head + dim, mask=inside, other=0.0).to(tl.float32)
    result = tl.sum(mix * share[:, None], 0) / weights
    if gated:
        result = result / (1.0 + tl.exp(-opened))
    tl.store(out + (row * heads + head) * width + dim, result.to(out.dtype.element_ty), mask=inside)
