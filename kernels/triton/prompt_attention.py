# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Attention of a prompt's span over its lane's pages, the span's own keys among them.

    rows of a span   | tile 0 | tile 1 | ...            one program: one tile of rows of one head
    keys             | 64 | 64 | 64 | ...  cut at absolute positions, read from the page that holds them

A program goes over the key tiles that any of its rows sees, in position order. Rows of a matrix product do not mix and
a key tile of which a row sees nothing changes nothing of it, so a row's bits follow from its position and the keys: not
from the span, nor from where its tile begins. Every number in the pools is finite, so keys behind the span weigh zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.attention import LOG2_E, held, padded
from tensorfold.kernels.triton.row_plan import launches

Tensor = Any


@dataclass(frozen=True, slots=True)
class PromptForm:
    """How a span's attention is cut: `tile` rows by `step` keys at once; both decide bits, with `warps`.

    `stages` of keys are under way at once. `parted`: key tiles that all rows see go without a mask.
    """

    tile: int = 128
    step: int = 64
    warps: int = 8
    stages: int = 2
    parted: bool = True


def prompt_form(width: int, memory: int = 227 << 10) -> PromptForm:
    """The form for heads of `width` dims on a card whose blocks may have `memory` bytes of shared memory."""
    if memory < 200 << 10 and width > 128:
        return PromptForm(64, 32, 4, 2)
    return PromptForm(stages=2 if width > 128 else 3)


@triton.jit
def _absorbed(score, v, top, weights, acc, factor):
    """As decode attention has it, but for weights that are summed as they are."""
    higher = tl.maximum(top, tl.max(score, 1))
    level = tl.where(higher == float("-inf"), 0.0, higher)
    fade = tl.exp2((top - level) * factor)
    weight = tl.exp2(tl.fma(score, factor, (-level * factor)[:, None]))
    weights = tl.fma(weights, fade, tl.sum(weight, 1))
    return higher, weights, tl.dot(weight.to(v.dtype), v, acc * fade[:, None])


@triton.jit
def _step(
    first, page, q, key_pages, value_pages, top, weights, acc, position, factor, group, window, groups: tl.constexpr,
    width: tl.constexpr, dims: tl.constexpr, windowed: tl.constexpr, step: tl.constexpr, masked: tl.constexpr,
):  # fmt: skip
    key, dim = tl.arange(0, step), tl.arange(0, dims)
    start = ((page.to(tl.int64) * 512 + first % 512) * groups + group) * width
    at = key[:, None] * (groups * width) + dim[None, :]
    if width == dims:
        k, v = tl.load(key_pages + start + at), tl.load(value_pages + start + at)
    else:
        inside = (dim < width)[None, :]
        k = tl.load(key_pages + start + at, mask=inside, other=0.0)
        v = tl.load(value_pages + start + at, mask=inside, other=0.0)
    score = tl.dot(q, tl.trans(k))
    if masked:
        seen = first + key[None, :] <= position[:, None]
        if windowed:
            seen = seen & (first + key[None, :] > position[:, None] - window)
        score = tl.where(seen, score, float("-inf"))
    return _absorbed(score, v, top, weights, acc, factor)


@triton.jit(**launches("pages", "start", "rows"))
def _span(
    query, key_pages, value_pages, pages, gate, out, factor, start, rows, window, gate_row, gate_head,
    heads: tl.constexpr, groups: tl.constexpr, width: tl.constexpr, dims: tl.constexpr, windowed: tl.constexpr,
    gated: tl.constexpr, tile: tl.constexpr, step: tl.constexpr, stages: tl.constexpr, parted: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(0)
    group = head // (heads // groups)
    opens = (tl.num_programs(1) - 1 - tl.program_id(1)) * tile  # the longest tiles first
    row, dim = opens + tl.arange(0, tile), tl.arange(0, dims)
    real, position = row < rows, start + row
    at = (row.to(tl.int64) * heads + head) * width
    q = tl.load(query + at[:, None] + dim[None, :], mask=held(real, dim, width, dims), other=0.0)
    end = start + tl.minimum(opens + tile, rows)
    low = 0
    if windowed:
        low = tl.maximum(start + opens + 1 - window, 0) // step * step
    top = tl.full([tile], float("-inf"), tl.float32)
    weights = tl.zeros([tile], tl.float32)
    acc = tl.zeros([tile, dims], tl.float32)
    page = tl.load(pages + low // 512)
    if parted and not windowed:
        whole = (start + opens + 1) // step * step
        for first in tl.range(low, whole, step, num_stages=stages):
            top, weights, acc = _step(
                first, page, q, key_pages, value_pages, top, weights, acc, position, factor, group, window, groups,
                width, dims, windowed, step, False,
            )  # fmt: skip
            page = tl.load(pages + (first + step) // 512, mask=first + step < end, other=0)
        low = whole
    for first in tl.range(low, end, step, num_stages=stages):
        top, weights, acc = _step(
            first, page, q, key_pages, value_pages, top, weights, acc, position, factor, group, window, groups, width,
            dims, windowed, step, True,
        )  # fmt: skip
        page = tl.load(pages + (first + step) // 512, mask=first + step < end, other=0)
    result = acc / tl.maximum(weights, 1e-30)[:, None]  # a row behind the span may have seen nothing
    if gated:
        gate_at = row.to(tl.int64) * gate_row + head * gate_head
        opened = tl.load(gate + gate_at[:, None] + dim[None, :], mask=held(real, dim, width, dims), other=0.0).to(
            tl.float32
        )
        result = result / (1.0 + tl.exp(-opened))
    tl.store(out + at[:, None] + dim[None, :], result.to(out.dtype.element_ty), mask=held(real, dim, width, dims))


def attend_span(
    form: PromptForm, query: Tensor, key_pages: Tensor, value_pages: Tensor, pages: Tensor, start: int, out: Tensor,
    scale: float, window: int = 0, gate: Tensor | None = None, gate_at: tuple[int, int] = (0, 0),
) -> None:  # fmt: skip
    """Causal attention of rows [T, H, D] at positions from `start` on over pages [pages, 512, G, D]; `out` [T, H, D].

    `pages` int32 [P]: the lane's. Row t reads the keys up to its own position, or the newest `window` of them, all of
    which have been written. The result is multiplied by sigmoid(gate), if any: numbers at `gate` + row * gate_at[0] +
    head * gate_at[1] + dim.
    """
    rows, heads, width = query.shape
    _span[(heads, triton.cdiv(rows, form.tile))](
        query, key_pages, value_pages, pages, query if gate is None else gate, out, scale * LOG2_E, start, rows, window,
        *gate_at, heads, key_pages.shape[2], width, padded(width), window > 0, gate is not None, form.tile, form.step,
        form.stages, form.parted, num_warps=form.warps,
    )  # fmt: skip
