# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""A chain of drafts goes on without the host: the token just drawn becomes the next row, one place further on.

One program moves all lanes of a chain. Nothing of a reply depends on these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

Tensor = Any


@triton.jit
def _advance(
    tokens, shares, ids, positions, lengths, committed, slots, path, draws_at, step, told, told_shares, lanes, width,
    block: tl.constexpr, wide: tl.constexpr,
):  # fmt: skip
    lane, column = tl.arange(0, block), tl.arange(0, wide)
    real = lane < lanes
    token = tl.load(tokens + lane, mask=real, other=0)
    at = tl.load(step)
    tl.store(told + at * lanes + lane, token, mask=real)
    tl.store(told_shares + at * lanes + lane, tl.load(shares + lane, mask=real, other=0.0), mask=real)
    tl.store(ids + lane, tl.maximum(token, 0), mask=real)
    tl.store(positions + lane, tl.load(positions + lane, mask=real, other=0) + 1, mask=real)
    tl.store(lengths + lane, tl.load(lengths + lane, mask=real, other=0) + 1, mask=real)
    tl.store(committed + lane, tl.load(committed + lane, mask=real, other=0) + 1, mask=real)
    tl.store(slots + lane, tl.load(slots + lane, mask=real, other=0) + 1, mask=real)
    tl.store(draws_at + lane, tl.load(draws_at + lane, mask=real, other=0) + 1, mask=real)
    inside = real[:, None] & (column < width)[None, :]
    way = path + lane[:, None] * width + column[None, :]
    tl.store(way, tl.load(way, mask=inside, other=0) + 1, mask=inside)
    tl.debug_barrier()
    tl.store(step, at + 1)


@dataclass(frozen=True, slots=True)
class ChainRows:
    """The next row of each of B chains, on the device: int32 [B] but `path` int32 [B, W] and `draws_at` int64 [B]."""

    ids: Tensor
    positions: Tensor
    lengths: Tensor
    committed: Tensor
    slots: Tensor
    path: Tensor
    draws_at: Tensor


def advance(tokens: Tensor, shares: Tensor, rows: ChainRows, step: Tensor, told: Tensor, told_shares: Tensor) -> None:
    """Enter the draws `tokens` int32 [B] with `shares` float32 [B] as step `step` int32 [1], and go on to the next.

    `told` int32 and `told_shares` float32 [steps, B] keep them. Every row moves one place on; a chain that drew nothing
    (-1) goes on with id 0.
    """
    lanes, width = rows.path.shape
    _advance[(1,)](
        tokens, shares, rows.ids, rows.positions, rows.lengths, rows.committed, rows.slots, rows.path, rows.draws_at,
        step, told, told_shares, lanes, width, triton.next_power_of_2(lanes), triton.next_power_of_2(width),
        num_warps=4,
    )  # fmt: skip
