# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Decode attention: rows of one lane share the reading of keys, and a row's bits do not know with whom.

    keys of a lane   | partition 0 | partition 1 | ...   cut by `row_plan` at absolute positions
    one unit         | 64 keys | 64 keys | ...           one tile of rows, one key head, one partition

                      64 keys                            a tile's row is a (row, head) pair of the key head's heads
    (row, head) 0    [ q . k  ] -> online softmax -> [ weights . v ]
    (row, head) 1    [        ]    key tile after key tile
    ...

A fixed number of programs takes units one after another; a second launch adds a row's partitions in one fixed shape.
Partitions and key tiles follow from a row's position, and all other sums over keys are chains of the matrix unit:
neither the tile of rows nor the number of rows or programs reaches a sum. A key that a row may not see weighs exactly
zero, and a key tile of which it sees nothing leaves its sums as they were. Keys of a tree's window are read by a path
of slots, in position order, as if they were contiguous.

Started early, a program finds its unit and asks for its first keys before it waits: the plan must have been made before
the launch that this one follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.attention_form import Form, form_of, launched, padded
from tensorfold.kernels.triton.attention_merge import merge_parts
from tensorfold.kernels.triton.following import begin, follow, let_next, wait_before
from tensorfold.kernels.triton.row_plan import FIELDS, launches, partition_range, plan_rows

Tensor = Any
PAGE = tl.constexpr(512)
LOG2_E = 1.4426950408889634
__all__ = ["Form", "Scratch", "attend_rows", "form_of", "held", "launched", "padded", "plan", "scratch_for"]
_STRIDE = 64  # rows of a launch whose attention is one and the same machine code


@dataclass(frozen=True, slots=True)
class Scratch:
    """What the launches of one decode attention hand on: the plan, and each partition's greatest score, sum and mix."""

    plan: Tensor
    most: Tensor
    total: Tensor
    mixed: Tensor


def scratch_for(form: Form, plan: Tensor, like: Tensor) -> Scratch:
    """Scratch of the rows of `like` under a plan, nothing of which need be kept between launches."""
    rows = like.shape[0]
    shape, kind = (rows, form.heads, form.parts), like.new_empty(0).float().dtype
    return Scratch(
        plan,
        like.new_empty(shape, dtype=kind),
        like.new_empty(shape, dtype=kind),
        like.new_empty((form.groups, form.parts, rows, form.shared, form.width), dtype=kind),
    )


def rows_block(rows: int) -> int:
    """Rows that a plan is made of at once."""
    return max(16, int(triton.next_power_of_2(rows)))


@triton.jit
def _slots(
    key, at, own_steps, own_low, limit, leaves, lengths, committed, path, pages, most_path, step: tl.constexpr,
):  # fmt: skip
    """Positions of keys of the window's step `at`, their rows of the pool, which are keys, and the leaf of the path."""
    leaf = tl.load(leaves + at // own_steps)
    position = own_low + at % own_steps * step + key
    there = position < tl.minimum(limit, tl.load(lengths + leaf))
    by_path = there & (position >= committed)
    named = tl.load(path + leaf * most_path + position - committed, mask=by_path, other=0)
    slot = tl.where(position >= committed, named, position)
    page = tl.load(pages + slot // PAGE, mask=there, other=0)
    return position, page * PAGE + slot % PAGE, there, leaf


@triton.jit
def held(rows, dim, width: tl.constexpr, dims: tl.constexpr):
    """The mask of a block [rows, dims] of which a head has the first `width` dims."""
    if width == dims:
        return rows[:, None]
    else:
        return rows[:, None] & (dim < width)[None, :]


@triton.jit
def _taken(score, v, ones, top, weights, acc, factor):
    """An online softmax over one more key tile: greatest score, sum of weights and mix of values of every row.

    `score` float32 [M, N], -inf for what a row may not see; weights are powers of two of `factor` times score. A tile
    of which a row sees nothing changes nothing of it. Weights are summed by a product too, [M, 8], as they are rounded
    for the mix: chains, which no tile or warp cuts; and a greatest number has no order.
    """
    higher = tl.maximum(top, tl.max(score, 1))
    level = tl.where(higher == float("-inf"), 0.0, higher)
    fade = tl.exp2((top - level) * factor)[:, None]
    weight = tl.exp2(tl.fma(score, factor, (-level * factor)[:, None])).to(v.dtype)
    return higher, tl.dot(weight, ones, weights * fade), tl.dot(weight, v, acc * fade)


@triton.jit
def _fetched(which, place, key_pages, value_pages, group, groups: tl.constexpr, width: tl.constexpr):
    """Ask for keys (`which` 0) and values (1) of a group at rows of the pool into the level-2 cache.

    A warp asks for one after another: keys and values lie in one tensor, of which each warp has a part.
    """
    size: tl.constexpr = key_pages.dtype.element_ty.primitive_bitwidth // 8
    base = tl.where(which == 0, key_pages.to(tl.int64), value_pages.to(tl.int64))
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;", "=r,l,r",
        [base + (place.to(tl.int64) * groups + group) * (width * size), tl.full(place.shape, width * size, tl.int32)],
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit(**launches("table", "lanes", "lengths", "committed", "path", "rows", "most_pages", "most_path"))
def _part(
    query, key_pages, value_pages, table, lanes, lengths, committed, path, plan, most, total, mixed, factor, window,
    rows, most_pages, most_path, heads: tl.constexpr, groups: tl.constexpr, width: tl.constexpr, dims: tl.constexpr,
    windowed: tl.constexpr, tile: tl.constexpr, per_tile: tl.constexpr, split: tl.constexpr, parts: tl.constexpr,
    step: tl.constexpr, stride: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    of_key: tl.constexpr = heads // groups
    shared: tl.constexpr = of_key // split  # heads of a key head that are in one tile
    ones = tl.full([step, 8], 1.0, key_pages.dtype.element_ty)
    runs = tl.arange(0, stride)
    ends = tl.load(plan + runs, mask=runs < rows, other=1 << 30)
    units = tl.load(plan + rows - 1)
    pair, dim, key = tl.arange(0, tile), tl.arange(0, dims), tl.arange(0, step)
    row_keys = key[:, None] * (groups * width) + dim[None, :]
    inside = held(key >= 0, dim, width, dims)
    for unit in range(tl.program_id(0), units, tl.num_programs(0)):
        run = tl.sum((ends <= unit).to(tl.int32), 0)
        within = unit - tl.load(plan + run - 1, mask=run > 0, other=0)
        first, count = tl.load(plan + stride + run), tl.load(plan + 2 * stride + run)
        size = tl.load(plan + 4 * stride + run)
        tiles = tl.cdiv(count, per_tile)
        top_row = first + within % tiles * per_tile
        share = within // tiles % (groups * split)
        group = share // split
        part = tl.load(plan + 3 * stride + run) + within // tiles // (groups * split)
        row = top_row + pair // shared
        real = pair < tl.minimum(first + count - top_row, per_tile) * shared
        before = tl.load(committed + top_row)
        pages = table + tl.load(lanes + top_row).to(tl.int64) * most_pages
        # Steps of the unit: tiles of committed keys alone, then the tiles with keys of the window, once a leaf.
        low, limit = part * size, tl.minimum(part * size + size, tl.load(plan + 8 * stride + top_row))
        if windowed:
            length = tl.load(lengths + row, mask=real, other=0)
            start = tl.maximum(length - window, 0)
            low = tl.maximum(low, tl.min(tl.where(real, start, 1 << 30), 0) // step * step)
        edge = before // step * step
        steps = tl.maximum(tl.cdiv(tl.minimum(limit, edge) - low, step), 0)
        own_low = tl.maximum(low, edge)
        own_steps = tl.maximum(tl.cdiv(limit - own_low, step), 0)
        leaves = plan + 6 * stride + top_row
        all_own = own_steps * tl.load(plan + 7 * stride + top_row)
        own_steps = tl.maximum(own_steps, 1)
        page = tl.load(pages + low // PAGE, mask=limit > low, other=0)
        if early:  # noqa: SIM102
            if unit == tl.program_id(0):  # later units have nothing to wait for
                both = tl.arange(0, 2 * step)
                # Units of the same keys are neighbours: each asks for others, so that later units find theirs, too.
                next_low = (tl.load(plan + 3 * stride + run) + within // groups) * size
                next_limit = tl.minimum(next_low + size, tl.load(plan + 8 * stride + top_row))
                if windowed:
                    next_low = tl.maximum(next_low, low)
                next_steps = tl.cdiv(tl.minimum(next_limit, edge) - next_low, step)
                for ahead in tl.static_range(2):
                    if ahead < next_steps:
                        position = next_low + ahead * step
                        place = tl.load(pages + position // PAGE) * PAGE + position % PAGE + both % step
                        _fetched(both // step, place, key_pages, value_pages, within % groups, groups, width)
                if (steps == 0) & (all_own > 0):
                    _, place, _, _ = _slots(
                        both % step, 0, own_steps, own_low, limit, leaves, lengths, before, path, pages, most_path, step
                    )
                    _fetched(both // step, place, key_pages, value_pages, group, groups, width)
        wait_before(early)
        of_share = (top_row.to(tl.int64) * heads + share * shared) * width
        at_pair = (pair // shared * heads + pair % shared) * width
        q = tl.load(
            query + of_share + at_pair[:, None] + dim[None, :], mask=held(real, dim, width, dims), other=0.0
        )  # fmt: skip
        top = tl.full([tile], float("-inf"), tl.float32)
        weights = tl.zeros([tile, 8], tl.float32)
        acc = tl.zeros([tile, dims], tl.float32)
        # Most units have keys of one kind alone: what the other needs stands behind a question, but for tiles whose
        # sums leave no registers free.
        # A step of committed keys lies in one page and every row sees it, but what a window leaves behind.
        if (tile > 64) | (steps > 0):
            for at in range(steps):
                position = low + at * step
                here = ((page.to(tl.int64) * PAGE + position % PAGE) * groups + group) * width
                if width == dims:
                    k = tl.load(key_pages + here + row_keys)
                    v = tl.load(value_pages + here + row_keys)
                else:
                    k = tl.load(key_pages + here + row_keys, mask=inside, other=0.0)
                    v = tl.load(value_pages + here + row_keys, mask=inside, other=0.0)
                score = tl.dot(q, tl.trans(k))
                if windowed:
                    score = tl.where((position + key)[None, :] >= start[:, None], score, float("-inf"))
                top, weights, acc = _taken(score, v, ones, top, weights, acc, factor)
                # The next step's page is found while this one is worked on.
                page = tl.load(pages + (position + step) // PAGE, mask=at + 1 < steps, other=0)
        if all_own > 0:
            length = tl.load(lengths + row, mask=real, other=0)
            server = tl.load(plan + 5 * stride + row, mask=real, other=0)
            for at in tl.range(0, all_own, num_stages=2):
                position, place, there, leaf = _slots(
                    key, at, own_steps, own_low, limit, leaves, lengths, before, path, pages, most_path, step
                )
                offset = (place.to(tl.int64) * groups + group) * width
                k = tl.load(key_pages + offset[:, None] + dim[None, :], mask=held(there, dim, width, dims), other=0.0)
                v = tl.load(value_pages + offset[:, None] + dim[None, :], mask=held(there, dim, width, dims), other=0.0)
                seen = position[None, :] < tl.where(server == leaf, length, 0)[:, None]
                if windowed:
                    seen = seen & (position[None, :] >= start[:, None])
                score = tl.where(seen, tl.dot(q, tl.trans(k)), float("-inf"))
                top, weights, acc = _taken(score, v, ones, top, weights, acc, factor)
        kept = real
        if windowed:  # a row of another start may have another partition in this place
            part_low, part_high = partition_range(length, window, size, windowed)
            kept = real & (part >= part_low) & (part < part_high)
        slot = part % parts
        to = (row * heads + share * shared + pair % shared) * parts + slot
        tl.store(most + to, top, mask=kept)
        tl.store(total + to, tl.max(weights, 1), mask=kept)
        # Mixes of a key head lie side by side, pair after pair.
        of_unit = (((group * parts + slot).to(tl.int64) * rows + top_row) * of_key + share % split * shared) * width
        at_mix = pair if split == 1 else pair // shared * of_key + pair % shared
        tl.store(
            mixed + of_unit + (at_mix * width)[:, None] + dim[None, :], acc, mask=held(kept, dim, width, dims)
        )  # fmt: skip
    wait_before(early)  # a program without units ends behind the launch before, like all others


@triton.jit(**launches("lanes", "lengths", "committed", "path", "rows", "most_path"))
def _plan(
    lanes, lengths, committed, path, plan, rows, most_path, window, windowed: tl.constexpr, groups: tl.constexpr,
    per_tile: tl.constexpr, parts: tl.constexpr, least: tl.constexpr, step: tl.constexpr, block: tl.constexpr,
    stride: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    plan_rows(
        lanes, lengths, committed, path, plan, rows, most_path, window, windowed, groups, per_tile, parts, least, step,
        block, stride,
    )  # fmt: skip


def plan(form: Form, lanes: Tensor, lengths: Tensor, committed: Tensor, path: Tensor) -> Tensor:
    """The plan of a launch, for each layer whose heads have this form; arguments are those of `attend_rows`."""
    rows = lanes.shape[0]
    made = lanes.new_empty((FIELDS, max(_STRIDE, rows_block(rows))))
    _plan[(1,)](
        lanes, lengths, committed, path, made, rows, path.shape[1], form.window, form.window > 0,
        form.groups * form.split, form.per_tile, form.parts, form.least, form.step, rows_block(rows), made.shape[1],
        num_warps=4, **follow(lanes),
    )  # fmt: skip
    return made


def attend_rows(
    form: Form, query: Tensor, key_pages: Tensor, value_pages: Tensor, table: Tensor, lanes: Tensor, lengths: Tensor,
    committed: Tensor, path: Tensor, scratch: Scratch, out: Tensor, scale: float, programs: int,
    gate: Tensor | None = None, gate_at: tuple[int, int] = (0, 0),
) -> None:  # fmt: skip
    """Attention of planned rows [R, H, D] over their lanes' pages [pages, 512, G, D]; `out` [R, H, D].

    `table` int32 [lanes, pages of a lane]; `lanes`, `lengths` (keys a row reads, itself included) and `committed` (keys
    of its lane that lie at their own position) int32 [R], rows of a lane side by side; `path` int32 [R, W]: the slot of
    the key at position committed + i. `scratch` holds the plan of these rows. `programs` share the units. The result
    is multiplied by sigmoid(gate), if any: numbers at `gate` + row * gate_at[0] + head * gate_at[1] + dim.
    """
    rows, heads, width = query.shape
    factor = scale * LOG2_E
    _part[(programs,)](
        query, key_pages, value_pages, table, lanes, lengths, committed, path, scratch.plan, scratch.most,
        scratch.total, scratch.mixed, factor, form.window, rows, table.shape[1], path.shape[1], heads, form.groups,
        width, form.dims, form.window > 0, form.tile, form.per_tile, form.split, form.parts, form.step,
        scratch.plan.shape[1], num_warps=form.warps, num_stages=form.stages, **follow(query),
    )  # fmt: skip
    slice_ = min(form.dims, 64)
    merge_parts[(rows, heads, form.dims // slice_)](
        scratch.most, scratch.total, scratch.mixed, lengths, query if gate is None else gate, out, factor, form.window,
        *gate_at, heads, form.groups, width, form.window > 0, form.parts, form.least, form.step, gate is not None,
        slice_, num_warps=2, **follow(out),
    )  # fmt: skip
