# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""From a fused projection to placed rows: queries normed and turned, keys and values written into their lane's pages.

A program makes one head of one row, so nothing of a row depends on another. Norms round to the rows' dtype before the
rotation, which works in float32 and rounds once more. A key or value that is no finite number is stored as one (0 for
NaN), since rows that share a key tile weigh it by zero where they may not see it.

Started early, the launch behind this one begins when the projection before it has ended: attention then reads its plan,
the positions of its rows and earlier keys while this one runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.attention import Form
from tensorfold.kernels.triton.following import follow, let_next, wait_before
from tensorfold.kernels.triton.rope import pair_of, turned
from tensorfold.kernels.triton.row_plan import launches

Tensor = Any
_MOST = tl.constexpr(3.38e38)  # below the greatest bfloat16
_PAGE = tl.constexpr(512)


@dataclass(frozen=True, slots=True)
class HeadForm:
    """What happens to heads before attention.

    `q_norm`, `k_norm`: weights [D] of RMS norms or None, with `q_eps`, `k_eps`. `turns` float64 [pairs]: turns a
    position of each rotated pair, None where positions do not count; turned dims are multiplied by `factor`.
    `interleaved` pairs neighbours instead of halves. `gated`: each query head is followed by as wide a gate.
    """

    q_norm: Tensor | None = None
    k_norm: Tensor | None = None
    q_eps: float = 0.0
    k_eps: float = 0.0
    turns: Tensor | None = None
    factor: float = 1.0
    interleaved: bool = False
    gated: bool = False

    @property
    def pairs(self) -> int:
        """Pairs of dims that turn."""
        return 0 if self.turns is None else int(self.turns.shape[0])


@triton.jit
def _head(
    source, position, learnt, learnt_too, normed, eps, turns, factor, dim, partner, kind, width: tl.constexpr,
    pairs: tl.constexpr, interleaved: tl.constexpr, has_norm: tl.constexpr,
):  # fmt: skip
    """One head [D] in float32, normed and turned; `learnt_too` are the weights of each dim's `partner`."""
    inside = dim < width
    value = tl.load(source + dim, mask=inside, other=0.0).to(tl.float32)
    if pairs > 0:
        other = tl.load(source + partner, mask=inside, other=0.0).to(tl.float32)
    else:
        other = value
    if has_norm:
        scale = tl.where(normed, tl.rsqrt(tl.sum(value * value, 0) * (1.0 / width) + eps), 1.0)
        value = (value * scale * learnt).to(kind).to(tl.float32)
        other = (other * scale * learnt_too).to(kind).to(tl.float32)
    if pairs > 0:
        value = turned(value, other, dim, position, turns, factor, pairs, interleaved)
    return value


@triton.jit(**launches("positions", "slots", "table", "lanes", "rows", "start", "most_pages"))
def _place(
    projected, positions, slots, table, lanes, q_weight, k_weight, turns, key_pages, value_pages, query, start,
    most_pages, q_eps, k_eps, factor, heads: tl.constexpr, groups: tl.constexpr, width: tl.constexpr,
    dims: tl.constexpr, gated: tl.constexpr, pairs: tl.constexpr, interleaved: tl.constexpr, q_norm: tl.constexpr,
    k_norm: tl.constexpr, of_rows: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(1).to(tl.int64), tl.program_id(0)
    each: tl.constexpr = 2 * width if gated else width
    dim = tl.arange(0, dims)
    inside = dim < width
    kind = projected.dtype.element_ty
    _, partner = pair_of(dim, tl.maximum(pairs, 1), interleaved)
    partner = tl.where(dim < 2 * pairs, partner, dim)
    learnt, learnt_too = tl.full([dims], 1.0, tl.float32), tl.full([dims], 1.0, tl.float32)
    of_query, of_key = head < heads, (head >= heads) & (head < heads + groups)
    if q_norm:
        at = dim < tl.where(of_query, width, 0)
        learnt = tl.load(q_weight + dim, mask=at, other=1.0).to(tl.float32)
        learnt_too = tl.load(q_weight + partner, mask=at, other=1.0).to(tl.float32)
    if k_norm:
        at = dim < tl.where(of_key, width, 0)
        learnt = tl.where(of_key, tl.load(k_weight + dim, mask=at, other=1.0).to(tl.float32), learnt)
        learnt_too = tl.where(of_key, tl.load(k_weight + partner, mask=at, other=1.0).to(tl.float32), learnt_too)
    wait_before(early)
    let_next(early)
    source = projected + row * (heads * each + 2 * groups * width)
    if head < heads:
        source += head * each
    else:
        source += heads * each + (head - heads) * width
    if of_rows:
        slot = tl.load(slots + row)
        pages = table + tl.load(lanes + row).to(tl.int64) * most_pages
    else:
        slot = start + row
        pages = table
    page = tl.load(pages + slot // _PAGE).to(tl.int64)
    at = ((page * _PAGE + slot % _PAGE) * groups + (head - heads) % groups) * width + dim
    if head < heads + groups:
        position = tl.load(positions + row)
        normed = (of_query & q_norm) | (of_key & k_norm)
        value = _head(
            source, position, learnt, learnt_too, normed, tl.where(of_query, q_eps, k_eps), turns, factor, dim, partner,
            kind, width, pairs, interleaved, q_norm or k_norm,
        )  # fmt: skip
        if head < heads:
            tl.store(query + (row * heads + head) * width + dim, value.to(query.dtype.element_ty), mask=inside)
        else:
            tl.store(key_pages + at, _finite(value).to(key_pages.dtype.element_ty), mask=inside)
    else:
        value = tl.load(source + dim, mask=inside, other=0.0).to(tl.float32)
        tl.store(value_pages + at, _finite(value).to(value_pages.dtype.element_ty), mask=inside)


@triton.jit
def _finite(value):
    return tl.minimum(tl.maximum(tl.where(value == value, value, 0.0), -_MOST), _MOST)


def place_rows(
    form: Form, head: HeadForm, projected: Tensor, positions: Tensor, lanes: Tensor, slots: Tensor, table: Tensor,
    key_pages: Tensor, value_pages: Tensor, query: Tensor,
) -> None:  # fmt: skip
    """Queries [R, H, D] of rows, and their keys and values at `slots` of their `lanes`.

    `projected` [R, H * D + 2 * G * D]: a row's queries (each followed by its gate, where there is one), keys, values.
    """
    _launch(
        form, head, projected, positions, slots, table, lanes, key_pages, value_pages, query, 0, max(1, form.dims // 32)
    )


def place_span(
    form: Form, head: HeadForm, projected: Tensor, positions: Tensor, start: int, pages: Tensor, key_pages: Tensor,
    value_pages: Tensor, query: Tensor,
) -> None:  # fmt: skip
    """The same for rows [T] of one lane, whose keys lie from slot `start` on in its `pages` int32 [P]."""
    _launch(form, head, projected, positions, pages, pages, None, key_pages, value_pages, query, start, 1)


def _launch(
    form: Form, head: HeadForm, projected: Tensor, positions: Tensor, slots: Tensor, table: Tensor,
    lanes: Tensor | None, key_pages: Tensor, value_pages: Tensor, query: Tensor, start: int, warps: int,
) -> None:  # fmt: skip
    _place[(form.heads + 2 * form.groups, query.shape[0])](
        projected, positions, slots, table, table if lanes is None else lanes,
        projected if head.q_norm is None else head.q_norm, projected if head.k_norm is None else head.k_norm,
        projected if head.turns is None else head.turns, key_pages, value_pages, query, start, table.shape[-1],
        head.q_eps, head.k_eps, head.factor, form.heads, form.groups, form.width, form.dims, head.gated, head.pairs,
        head.interleaved, head.q_norm is not None, head.k_norm is not None, lanes is not None, num_warps=warps,
        **follow(query),
    )  # fmt: skip
