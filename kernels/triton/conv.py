# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""What recurrent steps read of a row: the short convolution of four inputs, unit lengths, decays and step sizes.

Done once a row here, so that no step repeats it. A decoded row leaves everything in rings: its raw input, for the
convolutions of later rows, and its results, for the step that is made now and may be made again. A row's bits follow
from its own four inputs alone. Started early, a program reads rings and integers before it waits: both were written
before the copy that a round begins with.

Factors of a gated delta step, float32 [.., heads, 8], with k and q as the convolution leaves them: 0 what is kept, 1
that times the scale of k, 2 beta, 3 the scale of k, 4 what is kept times the scale of q, 5 the product of k and q of
unit length (q divided by the root of its width besides). Factors of a Mamba-2 step, [.., heads, 2]: 0 what is kept,
1 the step's size.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import follow, let_next, wait_before

Tensor = Any  # a torch tensor
DELTA_FACTORS, MAMBA2_FACTORS, SPAN_GATES = 8, 2, 4
_VARY = ("taps", "ring_at")  # one machine code for all launches: where these lie hangs on the row count
_SPAN = 16  # rows of a prompt that one program convolves


@triton.jit
def softplus(x):
    """log(1 + e^x) in float32."""
    return tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def _silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def _sources(taps, row):
    """Where a row's three older inputs lie: a ring's row, -1 for none, below -1 a row of this launch."""
    at = taps + row * 3
    return tl.load(at).to(tl.int64), tl.load(at + 1).to(tl.int64), tl.load(at + 2).to(tl.int64)


@triton.jit
def _weights(weight, place, limit, channels):
    """The weights of three older inputs, the oldest first, and of a row's own."""
    at, inside = weight + place, place < limit
    return (
        tl.load(at, mask=inside, other=0.0), tl.load(at + channels, mask=inside, other=0.0),
        tl.load(at + 2 * channels, mask=inside, other=0.0), tl.load(at + 3 * channels, mask=inside, other=0.0),
    )  # fmt: skip


@triton.jit
def _from_rings(raw, sources, weights, bias, place, limit, channels, has_bias: tl.constexpr):
    """What a row's convolution takes of earlier launches' inputs, at the channels `place` below `limit`."""
    total = tl.zeros(place.shape, tl.float32)
    if has_bias:
        total += tl.load(bias + place, mask=place < limit, other=0.0)
    for tap in tl.static_range(3):
        source = sources[tap]
        there = place < tl.where(source >= 0, limit, 0)
        old = tl.load(raw + source * channels + place, mask=there, other=0.0).to(tl.float32)
        # A choice, not a sum of zeros: what a row takes of no row stays as it is, the sign of a zero too.
        total = tl.where(source >= 0, total + old * weights[tap], total)
    return total


@triton.jit
def _from_rows(total, x, x_stride, sources, weights, place, limit):
    """The same with what it takes of rows of this launch, which are newer than all rows of rings."""
    for tap in tl.static_range(3):
        source = sources[tap]
        there = place < tl.where(source < -1, limit, 0)
        new = tl.load(x - (source + 2) * x_stride + place, mask=there, other=0.0).to(tl.float32)
        total = tl.where(source < -1, total + new * weights[tap], total)
    return total


@triton.jit
def _three_sums(a, b, c, other_a, other_b, other_c):
    return a + other_a, b + other_b, c + other_c


@triton.jit(do_not_specialize=_VARY)
def _delta_inputs(
    x, x_stride, a, a_stride, b, b_stride, taps, ring_at, raw, mixed, factors, out, weight, bias, rate, step_bias,
    channels, heads, key_heads, eps, has_bias: tl.constexpr, key_width: tl.constexpr, values: tl.constexpr,
    values_block: tl.constexpr, shared: tl.constexpr, shared_block: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.load(ring_at + row).to(tl.int64)
    kind = mixed.dtype.element_ty
    keys, deep = tl.arange(0, key_width), tl.arange(0, values_block)
    of_q = head * key_width + keys
    of_k = of_q + key_heads * key_width
    first = 2 * key_heads * key_width + head * values
    of_v, limit, inside = first + deep, first + values, deep < values
    sources = _sources(taps, row)
    for_q, for_k = _weights(weight, of_q, channels, channels), _weights(weight, of_k, channels, channels)
    for_v = _weights(weight, of_v, limit, channels)
    q = _from_rings(raw, sources, for_q, bias, of_q, channels, channels, has_bias)
    k = _from_rings(raw, sources, for_k, bias, of_k, channels, channels, has_bias)
    v = _from_rings(raw, sources, for_v, bias, of_v, limit, channels, has_bias)
    which = tl.arange(0, shared_block)
    mine = head * shared + which
    there = which < shared
    offset, fade = tl.load(step_bias + mine, mask=there, other=0.0), tl.load(rate + mine, mask=there, other=0.0)
    wait_before(early)
    # All loads come first, and hang on no load behind the wait: none of them may wait for a store.
    own = x + row * x_stride
    raw_q, raw_k, raw_v = tl.load(own + of_q), tl.load(own + of_k), tl.load(own + of_v, mask=inside, other=0.0)
    wide = tl.load(a + row * a_stride + mine, mask=there, other=0.0).to(tl.float32) + offset
    opened = tl.load(b + row * b_stride + mine, mask=there, other=0.0).to(tl.float32)
    if sources[2] < -1:
        q = _from_rows(q, x, x_stride, sources, for_q, of_q, channels)
        k = _from_rows(k, x, x_stride, sources, for_k, of_k, channels)
        v = _from_rows(v, x, x_stride, sources, for_v, of_v, limit)
    q = _silu(q + raw_q.to(tl.float32) * for_q[3]).to(kind)
    k = _silu(k + raw_k.to(tl.float32) * for_k[3]).to(kind)
    v = _silu(v + raw_v.to(tl.float32) * for_v[3]).to(kind)
    into, left = mixed + at * channels, raw + at * channels
    tl.store(left + of_q, raw_q)
    tl.store(left + of_k, raw_k)
    tl.store(left + of_v, raw_v, mask=inside)
    tl.store(into + of_q, q)
    tl.store(into + of_k, k)
    tl.store(into + of_v, v, mask=inside)
    nothing = tl.zeros([values_block], out.dtype.element_ty)
    tl.store(out + (row * key_heads + head) * values + deep, nothing, mask=inside)
    kept = tl.exp(fade * softplus(wide))
    q, k = q.to(tl.float32), k.to(tl.float32)  # as steps will read them
    of_key, of_query, both = tl.reduce((k * k, q * q, k * q), 0, _three_sums)
    key_scale = tl.rsqrt(of_key + eps)
    query_scale = tl.rsqrt(of_query + eps) * (key_width**-0.5)
    both = both * key_scale * query_scale
    to = factors + (at * heads + mine) * 8
    tl.store(to, kept, mask=there)
    tl.store(to + 1, kept * key_scale, mask=there)
    tl.store(to + 2, 1.0 / (1.0 + tl.exp(-opened)), mask=there)
    tl.store(to + 3, key_scale, mask=there)
    tl.store(to + 4, kept * query_scale, mask=there)
    tl.store(to + 5, both, mask=there)


@triton.jit(do_not_specialize=_VARY)
def _mamba2_inputs(
    x, x_stride, dt, dt_stride, taps, ring_at, raw, mixed, factors, out, weight, bias, rate, step_bias, channels, heads,
    inner, least, most, has_bias: tl.constexpr, block: tl.constexpr, heads_block: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.load(ring_at + row).to(tl.int64)
    if part == 0:  # the others convolve
        head = tl.arange(0, heads_block)
        there = head < heads
        offset, fade = tl.load(step_bias + head, mask=there, other=0.0), tl.load(rate + head, mask=there, other=0.0)
        wait_before(early)
        wide = tl.load(dt + row * dt_stride + head, mask=there, other=0.0).to(tl.float32) + offset
        size = tl.minimum(tl.maximum(softplus(wide), least), most)
        to = factors + (at * heads + head) * 2
        tl.store(to, tl.exp(fade * size), mask=there)
        tl.store(to + 1, size, mask=there)
    else:
        place = (part - 1) * block + tl.arange(0, block)
        inside = place < channels
        sources, weights = _sources(taps, row), _weights(weight, place, channels, channels)
        total = _from_rings(raw, sources, weights, bias, place, channels, channels, has_bias)
        wait_before(early)
        own = tl.load(x + row * x_stride + place, mask=inside, other=0.0)
        if sources[2] < -1:
            total = _from_rows(total, x, x_stride, sources, weights, place, channels)
        made = _silu(total + own.to(tl.float32) * weights[3])
        tl.store(raw + at * channels + place, own, mask=inside)
        tl.store(mixed + at * channels + place, made.to(mixed.dtype.element_ty), mask=inside)
        nothing = tl.zeros([block], out.dtype.element_ty)
        tl.store(out + row * inner + place, nothing, mask=place < inner)


@triton.jit
def _convolved_span(
    x, x_stride, raw, tail, weight, bias, rows, count, place, inside, channels, has_bias: tl.constexpr
):  # fmt: skip
    total = tl.zeros([rows.shape[0], place.shape[0]], tl.float32)
    if has_bias:
        total += tl.load(bias + place, mask=inside, other=0.0)[None, :]
    for tap in tl.static_range(4):
        source = (rows - 3 + tap).to(tl.int64)
        here = ((source >= 0) & (source < count))[:, None] & inside[None, :]
        value = tl.load(x + source[:, None] * x_stride + place[None, :], mask=here, other=0.0).to(tl.float32)
        if tap < 3:  # noqa: SIM102 (a compile-time choice, then a branch)
            if tl.program_id(0) == 0:  # the span's first rows reach before it
                old = tl.load(tail + source + 3, mask=source < 0, other=-1).to(tl.int64)
                there = (old >= 0)[:, None] & inside[None, :]
                value += tl.load(raw + old[:, None] * channels + place[None, :], mask=there, other=0.0).to(tl.float32)
        total += value * tl.load(weight + tap * channels + place, mask=inside, other=0.0)[None, :]
    return _silu(total)


@triton.jit
def _delta_span(
    x, x_stride, a, a_stride, b, b_stride, tail, raw, mixed, gates, weight, bias, rate, step_bias, count,
    channels, heads, key_heads, eps, has_bias: tl.constexpr, key_width: tl.constexpr, value_width: tl.constexpr,
    shared: tl.constexpr, span: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    rows = tl.program_id(0) * span + tl.arange(0, span)
    there = rows < count
    to = rows.to(tl.int64) * channels
    kind = mixed.dtype.element_ty
    keys = tl.arange(0, key_width)
    place = head * key_width + keys
    q = _convolved_span(x, x_stride, raw, tail, weight, bias, rows, count, place, keys >= 0, channels, has_bias)
    q = q.to(kind)
    tl.store(mixed + to[:, None] + place[None, :], q, mask=there[:, None])
    place += key_heads * key_width
    k = _convolved_span(x, x_stride, raw, tail, weight, bias, rows, count, place, keys >= 0, channels, has_bias)
    k = k.to(kind)
    tl.store(mixed + to[:, None] + place[None, :], k, mask=there[:, None])
    q, k = q.to(tl.float32), k.to(tl.float32)
    key_scale = 1.0 / tl.sqrt(tl.sum(k * k, 1) + eps)
    query_scale = 1.0 / tl.sqrt(tl.sum(q * q, 1) + eps) * (key_width**-0.5)
    deep = tl.arange(0, value_width)
    for which in tl.static_range(shared):
        mine = head * shared + which
        place = 2 * key_heads * key_width + mine * value_width + deep
        v = _convolved_span(x, x_stride, raw, tail, weight, bias, rows, count, place, deep >= 0, channels, has_bias)
        tl.store(mixed + to[:, None] + place[None, :], v.to(kind), mask=there[:, None])
        wide = tl.load(a + rows.to(tl.int64) * a_stride + mine, mask=there, other=0.0).to(tl.float32)
        opened = tl.load(b + rows.to(tl.int64) * b_stride + mine, mask=there, other=0.0).to(tl.float32)
        at = gates + (rows.to(tl.int64) * heads + mine) * 4
        tl.store(at, tl.load(rate + mine) * softplus(wide + tl.load(step_bias + mine)), mask=there)
        tl.store(at + 1, 1.0 / (1.0 + tl.exp(-opened)), mask=there)
        tl.store(at + 2, key_scale, mask=there)
        tl.store(at + 3, query_scale, mask=there)


@triton.jit
def _mamba2_span(
    x, x_stride, dt, dt_stride, tail, raw, mixed, steps, weight, bias, step_bias, count, channels, heads, least, most,
    has_bias: tl.constexpr, block: tl.constexpr, heads_block: tl.constexpr, span: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(1)
    rows = tl.program_id(0) * span + tl.arange(0, span)
    there = rows < count
    if part == 0:
        head = tl.arange(0, heads_block)
        both = there[:, None] & (head < heads)[None, :]
        at = rows.to(tl.int64)[:, None] * dt_stride + head[None, :]
        wide = tl.load(dt + at, mask=both, other=0.0).to(tl.float32)
        wide += tl.load(step_bias + head, mask=head < heads, other=0.0)[None, :]
        size = tl.minimum(tl.maximum(softplus(wide), least), most)
        tl.store(steps + rows.to(tl.int64)[:, None] * heads + head[None, :], size, mask=both)
    else:
        place = (part - 1) * block + tl.arange(0, block)
        inside = place < channels
        made = _convolved_span(x, x_stride, raw, tail, weight, bias, rows, count, place, inside, channels, has_bias)
        to = mixed + rows.to(tl.int64)[:, None] * channels + place[None, :]
        tl.store(to, made.to(mixed.dtype.element_ty), mask=there[:, None] & inside[None, :])


def delta_inputs(
    x: Tensor, a: Tensor, b: Tensor, taps: Tensor, ring_at: Tensor, raw: Tensor, mixed: Tensor, factors: Tensor,
    out: Tensor, weight: Tensor, bias: Tensor | None, rate: Tensor, step_bias: Tensor, key_heads: int, key_width: int,
    eps: float,
) -> None:  # fmt: skip
    """Inputs of gated delta steps of rows, left in the rings.

    `x` [R, C], q | k | v before the convolution, `a` and `b` [R, H]: columns of wider rows, maybe. `taps` int32 [R, 3]
    and `ring_at` int32 [R] as `Rows` has them. Rings: `raw` [.., C] and `mixed` [.., C] of one dtype, `factors` float32
    [.., H, 8]. `out` [R, H, V], where the steps' results will lie, becomes zero: rows that pad a launch have no steps.
    `weight` float32 [4, C], oldest first; `rate` is -exp(A) and `step_bias`, float32 [H].
    """
    rows, channels, heads = x.shape[0], mixed.shape[-1], factors.shape[-2]
    shared = heads // key_heads
    values = (channels - 2 * key_heads * key_width) // key_heads
    _delta_inputs[(rows, key_heads)](
        x, x.stride(0), a, a.stride(0), b, b.stride(0), taps, ring_at, raw, mixed, factors, out, weight,
        weight if bias is None else bias, rate, step_bias, channels, heads, key_heads, eps, bias is not None, key_width,
        values, triton.next_power_of_2(values), shared, triton.next_power_of_2(shared), num_warps=1,
        enable_fp_fusion=True, **follow(out),
    )  # fmt: skip


def mamba2_inputs(
    x: Tensor, dt: Tensor, taps: Tensor, ring_at: Tensor, raw: Tensor, mixed: Tensor, factors: Tensor, out: Tensor,
    weight: Tensor, bias: Tensor | None, rate: Tensor, step_bias: Tensor, limit: tuple[float, float] | None,
) -> None:  # fmt: skip
    """Inputs of Mamba-2 steps of rows, left in the rings: as `delta_inputs`, `x` being x | B | C and `dt` [R, H]."""
    rows, channels, heads = x.shape[0], mixed.shape[-1], factors.shape[-2]
    least, most = (0.0, float("inf")) if limit is None else limit
    _mamba2_inputs[(rows, 1 + triton.cdiv(channels, 512))](
        x, x.stride(0), dt, dt.stride(0), taps, ring_at, raw, mixed, factors, out, weight,
        weight if bias is None else bias, rate, step_bias, channels, heads, out[0].numel(), least, most,
        bias is not None, 512, triton.next_power_of_2(heads), num_warps=4, enable_fp_fusion=True, **follow(out),
    )  # fmt: skip


def delta_span(
    x: Tensor, a: Tensor, b: Tensor, tail: Tensor, raw: Tensor, mixed: Tensor, gates: Tensor, weight: Tensor,
    bias: Tensor | None, rate: Tensor, step_bias: Tensor, key_heads: int, key_width: int, eps: float,
) -> None:  # fmt: skip
    """Inputs of the gated delta scan over a prompt's span of T rows.

    As `delta_inputs`, with `tail` int32 [3] naming the ring rows before the span (-1: none). Results: `mixed` [T, C];
    `gates` float32 [T, H, 4]: the log of what is kept, beta, the scale of k, the scale of q.
    """
    count, channels, heads = x.shape[0], mixed.shape[-1], gates.shape[-2]
    _delta_span[(triton.cdiv(count, _SPAN), key_heads)](
        x, x.stride(0), a, a.stride(0), b, b.stride(0), tail, raw, mixed, gates, weight,
        weight if bias is None else bias, rate, step_bias, count, channels, heads, key_heads, eps, bias is not None,
        key_width, (channels - 2 * key_heads * key_width) // heads, heads // key_heads, _SPAN, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip


def mamba2_span(
    x: Tensor, dt: Tensor, tail: Tensor, raw: Tensor, mixed: Tensor, steps: Tensor, weight: Tensor,
    bias: Tensor | None, step_bias: Tensor, limit: tuple[float, float] | None,
) -> None:  # fmt: skip
    """Inputs of the Mamba-2 scan over a prompt's span: `mixed` [T, C] and `steps` float32 [T, H], the step sizes."""
    count, channels, heads = x.shape[0], mixed.shape[-1], steps.shape[-1]
    least, most = (0.0, float("inf")) if limit is None else limit
    _mamba2_span[(triton.cdiv(count, _SPAN), 1 + triton.cdiv(channels, 256))](
        x, x.stride(0), dt, dt.stride(0), tail, raw, mixed, steps, weight, weight if bias is None else bias, step_bias,
        count, channels, heads, least, most, bias is not None, 256, triton.next_power_of_2(heads), _SPAN, num_warps=4,
        enable_fp_fusion=True,
    )  # fmt: skip
