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

from dataclasses import dataclass, replace
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow, let_next, wait_before
from tensorfold.kernels.triton.row_plan import FIELDS, launches, partition_range, partition_size, plan_rows

Tensor = Any
PAGE = tl.constexpr(512)
LOG2_E = 1.4426950408889634
_STRIDE = 64  # rows of a launch whose attention is one and the same machine code


@dataclass(frozen=True, slots=True)
class Form:
    """How attention over heads of one shape is cut.

    `tile` (row, head) pairs are multiplied by `step` keys at once, `parts` is the most partitions of a row: `step` and
    `parts` decide bits. `few` is the tile of launches whose pairs fit into one of it, 0 where all have the same.
    `stages` of keys are under way at once, `resident` programs work on one multiprocessor.
    """

    heads: int
    groups: int
    width: int
    window: int = 0
    tile: int = 64
    step: int = 64
    parts: int = 32
    warps: int = 4
    stages: int = 3
    resident: int = 1
    few: int = 0

    @property
    def shared(self) -> int:
        """Query heads of one key head."""
        return self.heads // self.groups

    @property
    def per_tile(self) -> int:
        """Rows of a launch in one tile."""
        return self.tile // self.shared

    @property
    def dims(self) -> int:
        """Dims of a head in a product: no fewer than one takes, and a power of two."""
        return padded(self.width)

    @property
    def row_scratch(self) -> int:
        """Bytes of scratch that each row of a launch takes."""
        return 4 * self.heads * self.parts * (self.width + 2)


def padded(width: int) -> int:
    """The dims that a product takes for heads of `width`."""
    return max(16, int(triton.next_power_of_2(width)))


def form_of(
    heads: int, groups: int, width: int, window: int = 0, memory: int = 227 << 10, *, same_chains: bool = True
) -> Form:
    """The form of these heads on a card whose blocks may have `memory` bytes of shared memory.

    `same_chains`: whether products of few rows and of many add in the same order there.
    """
    shared = heads // groups
    tile = max(64, triton.next_power_of_2(shared))
    parts = min(64, max(8, triton.next_power_of_2(128 // groups + 1) // 2))
    wide, roomy = width > 128, memory >= 227 << 10
    step, warps = (32, 4) if wide and not roomy else (64, 8 if wide else 4)
    buffer, query = 4 * step * padded(width), 2 * tile * padded(width)
    stages = 3 if query + 2 * buffer + (8 << 10) <= memory else 2
    resident = 2 if 2 * (query + (stages - 1) * buffer + (8 << 10)) <= memory else 1
    few = 16 if same_chains and shared <= 16 else 0
    return Form(heads, groups, width, window, tile, step, parts, warps, stages, resident, few)


def launched(form: Form, rows: int) -> Form:
    """The form in which a launch of so many rows runs: its pairs in the smaller tile where they fit.

    The bits are the same: all sums over keys are chains of the matrix unit, whichever of its instructions makes them
    (`python -m tests.benchmarks.gpu --part attention` compares them on a card).
    """
    if not form.few or rows * form.shared > form.few:
        return form
    return replace(form, tile=form.few, warps=4, few=0)


@dataclass(frozen=True, slots=True)
class Scratch:
    """What the launches of one decode attention hand on: the plan, and each partition's greatest score, sum and mix."""

    plan: Tensor
    most: Tensor
    total: Tensor
    mixed: Tensor


def scratch_for(form: Form, plan: Tensor, like: Tensor) -> Scratch:
    """Scratch of the rows of `like` under a plan, nothing of which need be kept between launches."""
    shape = (like.shape[0], form.heads, form.parts)
    kind = like.new_empty(0).float().dtype
    return Scratch(
        plan,
        like.new_empty(shape, dtype=kind),
        like.new_empty(shape, dtype=kind),
        like.new_empty((*shape, form.width), dtype=kind),
    )


def rows_block(rows: int) -> int:
    """Rows that a plan is made of at once."""
    return max(16, int(triton.next_power_of_2(rows)))


@triton.jit
def _slots(
    at, steps, shared_steps, own_steps, low, own_low, limit, leaves, lengths, committed, path, pages, most_path,
    step: tl.constexpr,
):  # fmt: skip
    """Rows of the pool with the keys of step `at` of a unit, the leaf whose path they follow, and where they end."""
    own = tl.maximum(at - shared_steps, 0)
    is_own = (at >= shared_steps) & (at < steps)
    first = tl.where(is_own, own_low + own % own_steps * step, low + at * step)
    position = first + tl.arange(0, step)
    leaf = tl.load(leaves + own // own_steps, mask=is_own, other=0)
    end = tl.where(at < steps, tl.minimum(limit, tl.where(is_own, tl.load(lengths + leaf), limit)), 0)
    there = position < end
    by_path = there & (position >= committed)
    named = tl.load(path + leaf * most_path + position - committed, mask=by_path, other=0)
    slot = tl.where(position >= committed, named, position)
    page = tl.load(pages + slot // PAGE, mask=there, other=0)
    return page * PAGE + slot % PAGE, leaf, end


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
def _fetched(pages, offset, bytes_: tl.constexpr):
    """Ask for `bytes_` at each offset into the level-2 cache."""
    tl.inline_asm_elementwise(
        "cp.async.bulk.prefetch.L2.global [$1], $2; mov.u32 $0, 0;", "=r,l,r",
        [(pages + offset).to(tl.int64), tl.full(offset.shape, bytes_, tl.int32)], dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@triton.jit(**launches("table", "lanes", "lengths", "committed", "path", "rows", "most_pages", "most_path"))
def _part(
    query, key_pages, value_pages, table, lanes, lengths, committed, path, plan, most, total, mixed, factor, window,
    rows, most_pages, most_path, heads: tl.constexpr, groups: tl.constexpr, width: tl.constexpr, dims: tl.constexpr,
    windowed: tl.constexpr, tile: tl.constexpr, per_tile: tl.constexpr, parts: tl.constexpr,
    step: tl.constexpr, stride: tl.constexpr, stages: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    shared: tl.constexpr = heads // groups
    ones = tl.full([step, 8], 1.0, key_pages.dtype.element_ty)
    runs = tl.arange(0, stride)
    ends = tl.load(plan + runs, mask=runs < rows, other=1 << 30)
    units = tl.load(plan + rows - 1)
    pair, dim, key = tl.arange(0, tile), tl.arange(0, dims), tl.arange(0, step)
    for unit in range(tl.program_id(0), units, tl.num_programs(0)):
        run = tl.sum((ends <= unit).to(tl.int32), 0)
        within = unit - tl.load(plan + run - 1, mask=run > 0, other=0)
        first, count = tl.load(plan + stride + run), tl.load(plan + 2 * stride + run)
        size = tl.load(plan + 4 * stride + run)
        tiles = tl.cdiv(count, per_tile)
        top_row = first + within % tiles * per_tile
        group = within // tiles % groups
        part = tl.load(plan + 3 * stride + run) + within // tiles // groups
        row = top_row + pair // shared
        real = (pair < per_tile * shared) & (row < first + count)
        length = tl.load(lengths + row, mask=real, other=0)
        start = tl.maximum(length - window, 0) if windowed else length * 0
        server = tl.load(plan + 5 * stride + row, mask=real, other=0)
        before = tl.load(committed + top_row)
        pages = table + tl.load(lanes + top_row).to(tl.int64) * most_pages
        # Steps of the unit: tiles of committed keys alone, then the tiles with keys of the window, once a leaf.
        low, limit = part * size, tl.minimum(part * size + size, tl.max(length, 0))
        if windowed:
            earliest = tl.min(tl.where(real, start, 1 << 30), 0)
            low = tl.maximum(low, earliest // step * step)
        edge = before // step * step
        shared_steps = tl.maximum(tl.cdiv(tl.minimum(limit, edge) - low, step), 0)
        own_low = tl.maximum(low, edge)
        own_steps = tl.maximum(tl.cdiv(limit - own_low, step), 0)
        leaves = plan + 6 * stride + top_row
        steps = shared_steps + own_steps * tl.load(plan + 7 * stride + top_row)
        own_steps = tl.maximum(own_steps, 1)
        at_head = row.to(tl.int64) * heads + group * shared + pair % shared
        place, leaf, end = _slots(
            0, steps, shared_steps, own_steps, low, own_low, limit, leaves, lengths, before, path, pages, most_path,
            step,
        )  # fmt: skip
        if early:
            offset = (place.to(tl.int64) * groups + group) * width
            _fetched(key_pages, offset, 2 * width)
            _fetched(value_pages, offset, 2 * width)
        wait_before(early)
        q = tl.load(query + at_head[:, None] * width + dim[None, :], mask=held(real, dim, width, dims), other=0.0)
        top = tl.full([tile], float("-inf"), tl.float32)
        weights = tl.zeros([tile, 8], tl.float32)
        acc = tl.zeros([tile, dims], tl.float32)
        for at in tl.range(0, steps, num_stages=stages):
            own = tl.maximum(at - shared_steps, 0)
            tile_at = tl.where(at >= shared_steps, own_low + own % own_steps * step, low + at * step)
            position = tile_at + key
            offset = (place.to(tl.int64) * groups + group) * width
            there = held(position < end, dim, width, dims)
            k = tl.load(key_pages + offset[:, None] + dim[None, :], mask=there, other=0.0)
            v = tl.load(value_pages + offset[:, None] + dim[None, :], mask=there, other=0.0)
            reach = tl.where(server == tl.where(at >= shared_steps, leaf, server), length, 0)
            seen = position[None, :] < reach[:, None]
            if windowed:
                seen = seen & (position[None, :] >= start[:, None])
            score = tl.where(seen, tl.dot(q, tl.trans(k)), float("-inf"))
            top, weights, acc = _taken(score, v, ones, top, weights, acc, factor)
            # The next tile's place is found while this one is worked on.
            place, leaf, end = _slots(
                at + 1, steps, shared_steps, own_steps, low, own_low, limit, leaves, lengths, before, path, pages,
                most_path, step,
            )  # fmt: skip
        part_low, part_high = partition_range(length, window, size, windowed)
        kept = real & (part >= part_low) & (part < part_high)
        to = at_head * parts + part - part_low
        tl.store(most + to, top, mask=kept)
        tl.store(total + to, tl.max(weights, 1), mask=kept)
        tl.store(mixed + to[:, None] * width + dim[None, :], acc, mask=held(kept, dim, width, dims))
    wait_before(early)  # a program without units ends behind the launch before, like all others


@triton.jit(**launches("lengths"))
def _merge(
    most, total, mixed, lengths, gate, out, factor, window, gate_row, gate_head, heads: tl.constexpr,
    width: tl.constexpr, windowed: tl.constexpr, parts: tl.constexpr, step: tl.constexpr, gated: tl.constexpr,
    slice_: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dim, part = tl.program_id(2) * slice_ + tl.arange(0, slice_), tl.arange(0, parts)
    length = tl.load(lengths + row)
    low, high = partition_range(length, window, partition_size(length, window, windowed, parts, step), windowed)
    there = part < high - low
    at = (row * heads + head) * parts + part
    wait_before(early)
    top = tl.load(most + at, mask=there, other=float("-inf"))
    highest = tl.max(top, 0)
    share = tl.exp2((top - tl.where(highest == float("-inf"), 0.0, highest)) * factor)
    weights = tl.sum(share * tl.load(total + at, mask=there, other=0.0), 0)
    inside = dim < width
    part_mix = tl.load(mixed + at[:, None] * width + dim[None, :], mask=there[:, None] & inside[None, :], other=0.0)
    if gated:
        opened = tl.load(gate + row * gate_row + head * gate_head + dim, mask=inside, other=0.0).to(tl.float32)
    result = tl.sum(part_mix * share[:, None], 0) / weights
    if gated:
        result = result / (1.0 + tl.exp(-opened))
    tl.store(out + (row * heads + head) * width + dim, result.to(out.dtype.element_ty), mask=inside)


@triton.jit(**launches("lanes", "lengths", "committed", "path", "rows", "most_path"))
def _plan(
    lanes, lengths, committed, path, plan, rows, most_path, window, windowed: tl.constexpr, groups: tl.constexpr,
    per_tile: tl.constexpr, parts: tl.constexpr, step: tl.constexpr, block: tl.constexpr,
    stride: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    plan_rows(
        lanes,
        lengths,
        committed,
        path,
        plan,
        rows,
        most_path,
        window,
        windowed,
        groups,
        per_tile,
        parts,
        step,
        block,
        stride,
    )


def plan(form: Form, lanes: Tensor, lengths: Tensor, committed: Tensor, path: Tensor) -> Tensor:
    """The plan of a launch, for each layer whose heads have this form; arguments are those of `attend_rows`."""
    rows = lanes.shape[0]
    made = lanes.new_empty((FIELDS, max(_STRIDE, rows_block(rows))))
    _plan[(1,)](
        lanes, lengths, committed, path, made, rows, path.shape[1], form.window, form.window > 0, form.groups,
        form.per_tile, form.parts, form.step, rows_block(rows), made.shape[1], num_warps=4, **follow(lanes),
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
        width, form.dims, form.window > 0, form.tile, form.per_tile, form.parts, form.step, scratch.plan.shape[1],
        form.stages, num_warps=form.warps, **follow(query),
    )  # fmt: skip
    slice_ = min(form.dims, 64)
    _merge[(rows, heads, form.dims // slice_)](
        scratch.most, scratch.total, scratch.mixed, lengths, query if gate is None else gate, out, factor, form.window,
        *gate_at, heads, width, form.window > 0, form.parts, form.step, gate is not None, slice_, num_warps=2,
        **follow(out),
    )  # fmt: skip
