# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Rotary embedding inside other kernels: a head's dims turned by its row's absolute position.

Angles are counted in turns and in float64, so that a position of hundreds of thousands loses nothing; cosine and sine
are float32. Which dims are paired is a compile-time form; which frequencies they have is a table.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def pair_of(dim, pairs: tl.constexpr, interleaved: tl.constexpr):
    """The frequency's index of each of the first 2 * `pairs` dims, and the dim it turns with."""
    if interleaved:
        return dim // 2, dim ^ 1
    return dim % pairs, tl.where(dim < pairs, dim + pairs, dim - pairs)


@triton.jit
def turned(value, other, dim, position, turns, factor, pairs: tl.constexpr, interleaved: tl.constexpr):
    """`value` float32 [D] turned with its partners `other`; dims from 2 * `pairs` on pass through.

    `turns` float64 [pairs]: turns a position; turned dims are multiplied by `factor`.
    """
    pair, _ = pair_of(dim, pairs, interleaved)
    inside = dim < 2 * pairs
    whole = position.to(tl.float64) * tl.load(turns + pair, mask=inside, other=0.0)
    angle = ((whole - tl.floor(whole + 0.5)) * 6.283185307179586).to(tl.float32)
    cos, sin = tl.cos(angle) * factor, tl.sin(angle) * factor
    if interleaved:
        first = dim % 2 == 0
    else:
        first = dim < pairs
    return tl.where(inside, tl.fma(other, tl.where(first, -sin, sin), value * cos), value)
