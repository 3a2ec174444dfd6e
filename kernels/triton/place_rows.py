# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""From a fused projection to placed rows: queries normed and turned, keys and values written into their lane's pages.

A program makes one head of one row, so nothing of a row depends on another. Norms round to the rows' dtype before the
rotation, which works in float32 and rounds once more. A key or value that is no finite number is stored as one (0 for
NaN), since rows that share a key tile weigh it by zero where they may not see it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.attention import Form, Scratch, rows_block
from tensorfold.kernels.triton.following import begin, follow
from tensorfold.kernels.triton.rope import pair_of, turned
from tensorfold.kernels.triton.row_plan import launches, plan_rows

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
def _normed(source, dim, inside, weight, scale, kind, has_norm: tl.constexpr):
    value = tl.load(source + dim, mask=inside, other=0.0).to(tl.float32)
    if has_norm:
        value = (value * scale * tl.load(weight + dim, mask=inside, other=0.0).to(tl.float32)).to(kind).to(tl.float32)
    return value


@triton.jit
def _head(
    source, position, weight, eps, turns, factor, width: tl.constexpr, dims: tl.constexpr, pairs: tl.constexpr,
    interleaved: tl.constexpr, has_norm: tl.constexpr,
):  # fmt: skip
    """One head [D] in float32, normed and turned."""
    dim = tl.arange(0, dims)
    inside = dim < width
    kind = source.dtype.element_ty
    scale = 1.0
    if has_norm:
        raw = tl.load(source + dim, mask=inside, other=0.0).to(tl.float32)
        scale = 1.0 / tl.sqrt(tl.sum(raw * raw, 0) / width + eps)
    value = _normed(source, dim, inside, weight, scale, kind, has_norm)
    if pairs > 0:
        _, partner = pair_of(dim, pairs, interleaved)
        partner = tl.where(dim < 2 * pairs, partner, dim)
        other = _normed(source, partner, inside, weight, scale, kind, has_norm)
        value = turned(value, other, dim, position, turns, factor, pairs, interleaved)
    return value


@triton.jit(
    **launches(
        "positions",
        "slots",
        "table",
        "lanes",
        "lengths",
        "committed",
        "path",
        "rows",
        "start",
        "most_pages",
        "most_path",
    )
)
def _place(
    projected, positions, slots, table, q_weight, k_weight, turns, key_pages, value_pages, query, lanes, lengths,
    committed, path, plan, rows, start, most_pages, most_path, window, q_eps, k_eps, factor, heads: tl.constexpr,
    groups: tl.constexpr, width: tl.constexpr, dims: tl.constexpr, gated: tl.constexpr, pairs: tl.constexpr,
    interleaved: tl.constexpr, q_norm: tl.constexpr, k_norm: tl.constexpr, of_rows: tl.constexpr,
    windowed: tl.constexpr, per_tile: tl.constexpr, parts: tl.constexpr, step: tl.constexpr, block: tl.constexpr,
    stride: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, head = tl.program_id(1).to(tl.int64), tl.program_id(0)
    each: tl.constexpr = 2 * width if gated else width
    dim = tl.arange(0, dims)
    inside = dim < width
    source = projected + row * (heads * each + 2 * groups * width)
    if head < heads:
        position = tl.load(positions + row)
        value = _head(
            source + head * each, position, q_weight, q_eps, turns, factor, width, dims, pairs, interleaved, q_norm
        )
        tl.store(query + (row * heads + head) * width + dim, value.to(query.dtype.element_ty), mask=inside)
    elif head < heads + 2 * groups:
        if of_rows:
            slot = tl.load(slots + row)
            pages = table + tl.load(lanes + row).to(tl.int64) * most_pages
        else:
            slot = start + row
            pages = table
        page = tl.load(pages + slot // _PAGE).to(tl.int64)
        group = (head - heads) % groups
        source += heads * each + (head - heads) * width
        at = ((page * _PAGE + slot % _PAGE) * groups + group) * width + dim
        if head < heads + groups:
            position = tl.load(positions + row)
            key = _head(source, position, k_weight, k_eps, turns, factor, width, dims, pairs, interleaved, k_norm)
            tl.store(key_pages + at, _finite(key).to(key_pages.dtype.element_ty), mask=inside)
        else:
            value = tl.load(source + dim, mask=inside, other=0.0).to(tl.float32)
            tl.store(value_pages + at, _finite(value).to(value_pages.dtype.element_ty), mask=inside)
    elif of_rows:  # noqa: SIM102 (a compile-time choice, then one program's)
        if row == 0:
            plan_rows(
                lanes, lengths, committed, path, plan, rows, most_path, window, windowed, groups, per_tile, parts, step,
                block, stride,
            )  # fmt: skip


@triton.jit
def _finite(value):
    return tl.minimum(tl.maximum(tl.where(value == value, value, 0.0), -_MOST), _MOST)


def place_rows(
    form: Form, head: HeadForm, projected: Tensor, positions: Tensor, lanes: Tensor, lengths: Tensor, committed: Tensor,
    slots: Tensor, path: Tensor, table: Tensor, key_pages: Tensor, value_pages: Tensor, query: Tensor, scratch: Scratch,
) -> None:  # fmt: skip
    """Queries [R, H, D] of rows, their keys and values at `slots` of their lanes, and the plan of their attention.

    `projected` [R, H * D + 2 * G * D]: a row's queries (each followed by its gate, where there is one), keys, values.
    """
    rows = query.shape[0]
    _launch(
        form, head, projected, positions, slots, table, key_pages, value_pages, query,
        (lanes, lengths, committed, path, scratch.plan), 0, rows_block(rows), 4,
        (form.heads + 2 * form.groups + 1, rows),
    )  # fmt: skip


def place_span(
    form: Form, head: HeadForm, projected: Tensor, positions: Tensor, start: int, pages: Tensor, key_pages: Tensor,
    value_pages: Tensor, query: Tensor,
) -> None:  # fmt: skip
    """The same for rows [T] of one lane, whose keys lie from slot `start` on in its `pages` int32 [P]."""
    _launch(
        form, head, projected, positions, pages, pages, key_pages, value_pages, query, (pages,) * 5, start, 0, 1,
        (form.heads + 2 * form.groups, query.shape[0]),
    )  # fmt: skip


def _launch(
    form: Form, head: HeadForm, projected: Tensor, positions: Tensor, slots: Tensor, table: Tensor, key_pages: Tensor,
    value_pages: Tensor, query: Tensor, of_rows: tuple[Tensor, ...], start: int, block: int, warps: int,
    grid: tuple[int, int],
) -> None:  # fmt: skip
    lanes, lengths, committed, path, plan = of_rows
    _place[grid](
        projected, positions, slots, table,
        projected if head.q_norm is None else head.q_norm, projected if head.k_norm is None else head.k_norm,
        projected if head.turns is None else head.turns, key_pages, value_pages, query, lanes, lengths, committed, path,
        plan, grid[1], start, table.shape[-1], path.shape[-1], form.window, head.q_eps, head.k_eps, head.factor,
        form.heads, form.groups, form.width, form.dims, head.gated, head.pairs, head.interleaved,
        head.q_norm is not None, head.k_norm is not None, block > 0, form.window > 0, form.per_tile, form.parts,
        form.step, max(block, 16), plan.shape[-1] if block else 16, num_warps=warps, **follow(query),
    )  # fmt: skip
