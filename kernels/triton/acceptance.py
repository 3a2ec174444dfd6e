# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Which rows of a window stand, found on the device: `domain.verification` for windows whose draws lie there.

One program a window walks down from its last forced row: the next row is the first child that carries the draw. The
host checks every path against the domain's rule, so that a fault here costs time and no token.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow

Tensor = Any
FIELDS = 4  # of a window: its first row in the launch, its rows, how many of them are forced, the room of its reply


@triton.jit
def _stops(token, ends):
    return tl.max((ends == token).to(tl.int32), 0) > 0


@triton.jit
def _accept(
    windows, tokens, parents, draws, stops, kept, ends_each, size: tl.constexpr, ends: tl.constexpr,
    early: tl.constexpr,
):  # fmt: skip
    begin(early)
    window = tl.program_id(0).to(tl.int64)
    start, count = tl.load(windows + window * 4), tl.load(windows + window * 4 + 1)
    forced, room = tl.load(windows + window * 4 + 2), tl.load(windows + window * 4 + 3)
    index = tl.arange(0, size)
    real = index < count
    token = tl.load(tokens + start + index, mask=real, other=-1)
    parent = tl.load(parents + start + index, mask=real, other=-1)
    drawn = tl.load(draws + start + index, mask=real, other=-1)
    place = tl.arange(0, ends)
    end = tl.load(stops + window * ends_each + place, mask=place < ends_each, other=-1)
    out = kept + window * (size + 2)
    path = tl.where(index <= forced, index, -1)
    length, row = forced + 1, forced
    pending = tl.sum(tl.where(index == row, drawn, 0), 0)
    open_ = (length < room) & (_stops(pending, end) == 0)
    while open_:
        below = real & (index > forced) & (parent == row) & (token == pending)
        child = tl.min(tl.where(below, index, size), 0)
        if child < size:
            row = child
            path = tl.where(index == length, row, path)
            length += 1
            pending = tl.sum(tl.where(index == row, drawn, 0), 0)
        open_ = (child < size) & (length < room) & (_stops(pending, end) == 0)
    tl.store(out, length)
    tl.store(out + 1, pending)
    tl.store(out + 2 + index, path)


def accept_windows(
    windows: Tensor, tokens: Tensor, parents: Tensor, draws: Tensor, stops: Tensor, kept: Tensor
) -> None:
    """`kept` int32 [N, 2 + W] of N windows: how many rows stand, the next pending token, the rows and then -1.

    `windows` int32 [N, 4]: first row in the launch, rows (at most W, a power of two), forced rows, room. `tokens`,
    `parents` (within the window) and `draws` int32 [R]. `stops` int32 [N, S]: tokens behind which nothing is kept,
    filled up with -1.
    """
    size, ends = kept.shape[1] - 2, stops.shape[1]
    _accept[(windows.shape[0],)](
        windows, tokens, parents, draws, stops, kept, ends, size, triton.next_power_of_2(ends), num_warps=1,
        **follow(kept),
    )  # fmt: skip
