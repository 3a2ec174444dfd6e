# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Rotary embedding inside other kernels: a head's dims turned by its row's absolute position.

Angles are counted in turns and in float64, so that a position of hundreds of thousands loses nothing; cosine and sine
are float32, of an eighth of a turn at most: a library's, which must reduce any angle, are four times the code. Which
dims are paired is a compile-time form; which frequencies they have is a table.
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
def _cos_sin(turns):
    """Cosine and sine in float32 of float64 turns: Taylor's polynomials up to an eighth of a turn, then quadrants."""
    quarter = tl.floor(turns * 4.0 + 0.5)
    x = ((turns - quarter * 0.25) * 6.283185307179586).to(tl.float32)
    square = x * x
    sine = tl.fma(square, tl.fma(square, 2.7557319e-6, -1.9841270e-4), 8.3333333e-3)
    sine = tl.fma(x * square, tl.fma(square, sine, -0.16666667), x)
    cosine = tl.fma(square, tl.fma(square, 2.4801587e-5, -1.3888889e-3), 4.1666667e-2)
    cosine = tl.fma(square, tl.fma(square, cosine, -0.5), 1.0)
    which = quarter.to(tl.int32)
    odd = (which & 1) != 0
    first, second = tl.where(odd, sine, cosine), tl.where(odd, cosine, sine)
    return tl.where(((which + 1) & 2) != 0, -first, first), tl.where((which & 2) != 0, -second, second)


@triton.jit
def turned(value, other, dim, position, turns, factor, pairs: tl.constexpr, interleaved: tl.constexpr):
    """`value` float32 [D] turned with its partners `other`; dims from 2 * `pairs` on pass through.

    `turns` float64 [pairs]: turns a position; turned dims are multiplied by `factor`.
    """
    pair, _ = pair_of(dim, pairs, interleaved)
    inside = dim < 2 * pairs
    whole = position.to(tl.float64) * tl.load(turns + pair, mask=inside, other=0.0)
    cos, sin = _cos_sin(whole - tl.floor(whole + 0.5))
    cos, sin = cos * factor, sin * factor
    if interleaved:
        first = dim % 2 == 0
    else:
        first = dim < pairs
    return tl.where(inside, tl.fma(other, tl.where(first, -sin, sin), value * cos), value)
