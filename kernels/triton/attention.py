# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Decode attention: rows of one lane share the reading of keys, and a row's bits do not know with whom.

    keys of a lane   | partition 0 | partition 1 | ...   cut by `row_plan` at absolute positions
    one unit         | 64 keys | 64 keys | ...           one tile of rows, one key head, one partition

                      64 keys                            a tile's row is a (row, head) pair of the key head's heads
    (row, head) 0    [ q . k  ] -> online softmax -> [ weights . v ]
    (row, head) 1    [        ]    key tile after key tile
    ...

A fixed number of programs takes units one after another; a second launch adds a row's partitions in one fixed shape:
those of a span one after another, then the spans. A launch of many rows has units of whole spans, which fold their
partitions by the same operations before they write one entry.
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

    `tile` (row, head) pairs are multiplied by `step` keys at once, `parts` is the most partitions of a row, `least` the
    fewest steps of a partition, and `span` partitions are added one after another: these four but `tile` decide bits.
    `few` is the tile of launches whose pairs fit into one of it, 0 where all have the same; launches of more than
    `many` rows fold spans (`folds`), none where it is 0. `stages` of keys are under way at once, `resident` programs
    work on one multiprocessor.
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
    least: int = 1
    span: int = 1
    many: int = 0
    folds: bool = False

    @property
    def each(self) -> int:
        """Partitions of a unit."""
        return self.span if self.folds else 1

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
    """The form in which a launch of so many rows runs: few pairs in the smaller tile, many rows folding spans.

    The bits are the same: all sums over keys are chains of the matrix unit, whichever of its instructions makes them,
    and units fold partitions by the operations of the merge (`python -m tests.benchmarks.gpu --part attention` compares
    them on a card).
    """
    if form.few and rows * form.shared <= form.few:
        return replace(form, tile=form.few, warps=4, few=0, many=0)
    if form.many and rows > form.many:
        wide = {"warps": 8, "resident": 1} if form.dims > 128 else {}
        return replace(form, few=0, many=0, folds=True, **wide)
    return form


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
    at, own_steps, own_low, limit, leaves, lengths, committed, path, pages, most_path, step: tl.constexpr,
):  # fmt: skip
    """Positions of the window's step `at`, their rows of the pool, which are keys, and the leaf whose path it is."""
    leaf = tl.load(leaves + at // own_steps)
    position = own_low + at % own_steps * step + tl.arange(0, step)
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
def _shares(top, more, factor):
    """The greater of two greatest scores, and what sums under each of them weigh under it."""
    higher = tl.maximum(top, more)
    level = tl.where(higher == float("-inf"), 0.0, higher)
    return higher, tl.exp2((top - level) * factor), tl.exp2((more - level) * factor)


@triton.jit
def _folded(now, top, weights, acc, next_top, next_weights, next_acc, factor):
    """A span's sums [M, 8] and [M, D] with those of one more partition, in rows that are folded `now`.

    One multiply and one multiply-add each, as in the merge. A row that sees nothing of the partition stays as it is.
    """
    higher, share, more = _shares(top, next_top, factor)
    folds = now & (next_top != float("-inf"))
    weights = tl.where(folds[:, None], tl.fma(next_weights, more[:, None], weights * share[:, None]), weights)
    acc = tl.where(folds[:, None], tl.fma(next_acc, more[:, None], acc * share[:, None]), acc)
    return tl.where(folds, higher, top), weights, acc


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
    windowed: tl.constexpr, tile: tl.constexpr, per_tile: tl.constexpr, parts: tl.constexpr, span: tl.constexpr,
    folds: tl.constexpr, step: tl.constexpr, stride: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    shared: tl.constexpr = heads // groups
    each: tl.constexpr = span if folds else 1
    ones = tl.full([step, 8], 1.0, key_pages.dtype.element_ty)
    runs = tl.arange(0, stride)
    ends = tl.load(plan + runs, mask=runs < rows, other=1 << 30)
    units = tl.load(plan + rows - 1)
    pair, dim, key = tl.arange(0, tile), tl.arange(0, dims), tl.arange(0, step)
    row_keys = key[:, None] * (groups * width) + dim[None, :]
    for unit in range(tl.program_id(0), units, tl.num_programs(0)):
        run = tl.sum((ends <= unit).to(tl.int32), 0)
        within = unit - tl.load(plan + run - 1, mask=run > 0, other=0)
        first, count = tl.load(plan + stride + run), tl.load(plan + 2 * stride + run)
        size = tl.load(plan + 4 * stride + run)
        tiles = tl.cdiv(count, per_tile)
        top_row = first + within % tiles * per_tile
        group = within // tiles % groups
        part = (tl.load(plan + 3 * stride + run) + within // tiles // groups) * each
        row = top_row + pair // shared
        real = (pair < per_tile * shared) & (row < first + count)
        length = tl.load(lengths + row, mask=real, other=0)
        start = tl.maximum(length - window, 0) if windowed else length * 0
        server = tl.load(plan + 5 * stride + row, mask=real, other=0)
        before = tl.load(committed + top_row)
        pages = table + tl.load(lanes + top_row).to(tl.int64) * most_pages
        # Steps of the unit: tiles of committed keys alone, then the tiles with keys of the window, once a leaf.
        low, limit = part * size, tl.minimum(part * size + size * each, tl.max(length, 0))
        if windowed:
            earliest = tl.min(tl.where(real, start, 1 << 30), 0)
            low = tl.maximum(low, earliest // step * step)
        edge = before // step * step
        steps = tl.maximum(tl.cdiv(tl.minimum(limit, edge) - low, step), 0)
        own_low = tl.maximum(low, edge)
        own_steps = tl.maximum(tl.cdiv(limit - own_low, step), 0)
        leaves = plan + 6 * stride + top_row
        all_own = own_steps * tl.load(plan + 7 * stride + top_row)
        own_steps = tl.maximum(own_steps, 1)
        at_head = row.to(tl.int64) * heads + group * shared + pair % shared
        page = tl.load(pages + low // PAGE, mask=limit > low, other=0)
        if early:  # noqa: SIM102
            if limit > low:
                last = tl.minimum(limit - low, PAGE - low % PAGE) - 1
                near = low % PAGE + tl.minimum(tl.arange(0, 2 * step), last)
                offset = ((page.to(tl.int64) * PAGE + near) * groups + group) * width
                _fetched(key_pages, offset, 2 * width)
                _fetched(value_pages, offset, 2 * width)
        wait_before(early)
        q = tl.load(query + at_head[:, None] * width + dim[None, :], mask=held(real, dim, width, dims), other=0.0)
        top = tl.full([tile], float("-inf"), tl.float32)
        weights = tl.zeros([tile, 8], tl.float32)
        acc = tl.zeros([tile, dims], tl.float32)
        if folds:
            all_top, all_weights, all_acc = top, weights, acc
        inside = held(key >= 0, dim, width, dims)
        # A step of committed keys lies in one page and every row sees it, but what a window leaves behind.
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
            if folds:  # noqa: SIM102
                if (position + step) % size == 0:
                    all_top, all_weights, all_acc = _folded(
                        real, all_top, all_weights, all_acc, top, weights, acc, factor
                    )
                    top = tl.full([tile], float("-inf"), tl.float32)
                    weights = tl.zeros([tile, 8], tl.float32)
                    acc = tl.zeros([tile, dims], tl.float32)
        for at in tl.range(0, all_own, num_stages=2):
            position, place, there, leaf = _slots(
                at, own_steps, own_low, limit, leaves, lengths, before, path, pages, most_path, step
            )
            offset = (place.to(tl.int64) * groups + group) * width
            k = tl.load(key_pages + offset[:, None] + dim[None, :], mask=held(there, dim, width, dims), other=0.0)
            v = tl.load(value_pages + offset[:, None] + dim[None, :], mask=held(there, dim, width, dims), other=0.0)
            seen = position[None, :] < tl.where(server == leaf, length, 0)[:, None]
            if windowed:
                seen = seen & (position[None, :] >= start[:, None])
            score = tl.where(seen, tl.dot(q, tl.trans(k)), float("-inf"))
            top, weights, acc = _taken(score, v, ones, top, weights, acc, factor)
            if folds:
                ended = (own_low + at % own_steps * step + step) % size == 0
                now = (server == leaf) & ended
                all_top, all_weights, all_acc = _folded(now, all_top, all_weights, all_acc, top, weights, acc, factor)
                top = tl.where(now, float("-inf"), top)
                weights = tl.where(now[:, None], 0.0, weights)
                acc = tl.where(now[:, None], 0.0, acc)
        if folds:
            top, weights, acc = _folded(real, all_top, all_weights, all_acc, top, weights, acc, factor)
        part_low, part_high = partition_range(length, window, size, windowed)
        kept = real & (part + each > part_low) & (part < part_high)
        to = at_head * parts + part - part_low // span * span
        tl.store(most + to, top, mask=kept)
        tl.store(total + to, tl.max(weights, 1), mask=kept)
        tl.store(mixed + to[:, None] * width + dim[None, :], acc, mask=held(kept, dim, width, dims))
    wait_before(early)  # a program without units ends behind the launch before, like all others


@triton.jit(**launches("lengths", "each"))
def _merge(
    most, total, mixed, lengths, gate, out, factor, window, gate_row, gate_head, each, heads: tl.constexpr,
    width: tl.constexpr, windowed: tl.constexpr, parts: tl.constexpr, span: tl.constexpr, least: tl.constexpr,
    step: tl.constexpr, gated: tl.constexpr, slice_: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    let_next(early)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dim, entry = tl.program_id(2) * slice_ + tl.arange(0, slice_), tl.arange(0, parts // span) * span
    length = tl.load(lengths + row)
    size = partition_size(length, window, windowed, parts, span, step, least)
    low, high = partition_range(length, window, size, windowed)
    first = low // span * span
    at = (row * heads + head) * parts + entry
    inside = dim < width
    wait_before(early)
    if span == 1:
        there = entry < high - low
        top = tl.load(most + at, mask=there, other=float("-inf"))
        sums = tl.load(total + at, mask=there, other=0.0)
        mix = tl.load(mixed + at[:, None] * width + dim[None, :], mask=there[:, None] & inside[None, :], other=0.0)
    else:
        top = tl.full([parts // span], float("-inf"), tl.float32)
        sums = tl.zeros([parts // span], tl.float32)
        mix = tl.zeros([parts // span, slice_], tl.float32)
        for more in tl.static_range(span):
            # A unit that folded its span has written it as the first partition.
            number = first + entry + more
            there = ((entry + more) % each == 0) & (number + each > low) & (number < high)
            held_mix = there[:, None] & inside[None, :]
            next_top = tl.load(most + at + more, mask=there, other=float("-inf"))
            next_sums = tl.load(total + at + more, mask=there, other=0.0)
            next_mix = tl.load(mixed + (at + more)[:, None] * width + dim[None, :], mask=held_mix, other=0.0)
            higher, share, gain = _shares(top, next_top, factor)
            folds = next_top != float("-inf")
            sums = tl.where(folds, tl.fma(next_sums, gain, sums * share), sums)
            mix = tl.where(folds[:, None], tl.fma(next_mix, gain[:, None], mix * share[:, None]), mix)
            top = higher
    highest = tl.max(top, 0)
    share = tl.exp2((top - tl.where(highest == float("-inf"), 0.0, highest)) * factor)
    weights = tl.sum(share * sums, 0)
    if gated:
        opened = tl.load(gate + row * gate_row + head * gate_head + dim, mask=inside, other=0.0).to(tl.float32)
    result = tl.sum(mix * share[:, None], 0) / weights
    if gated:
        result = result / (1.0 + tl.exp(-opened))
    tl.store(out + (row * heads + head) * width + dim, result.to(out.dtype.element_ty), mask=inside)


@triton.jit(**launches("lanes", "lengths", "committed", "path", "rows", "most_path"))
def _plan(
    lanes, lengths, committed, path, plan, rows, most_path, window, windowed: tl.constexpr, groups: tl.constexpr,
    per_tile: tl.constexpr, parts: tl.constexpr, span: tl.constexpr, each: tl.constexpr, least: tl.constexpr,
    step: tl.constexpr, block: tl.constexpr, stride: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    plan_rows(
        lanes, lengths, committed, path, plan, rows, most_path, window, windowed, groups, per_tile, parts, span, each,
        least, step, block, stride,
    )  # fmt: skip


def plan(form: Form, lanes: Tensor, lengths: Tensor, committed: Tensor, path: Tensor) -> Tensor:
    """The plan of a launch, for each layer whose heads have this form; arguments are those of `attend_rows`."""
    rows = lanes.shape[0]
    made = lanes.new_empty((FIELDS, max(_STRIDE, rows_block(rows))))
    _plan[(1,)](
        lanes, lengths, committed, path, made, rows, path.shape[1], form.window, form.window > 0, form.groups,
        form.per_tile, form.parts, form.span, form.each, form.least, form.step, rows_block(rows), made.shape[1],
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
        width, form.dims, form.window > 0, form.tile, form.per_tile, form.parts, form.span, form.folds, form.step,
        scratch.plan.shape[1], num_warps=form.warps, num_stages=form.stages, **follow(query),
    )  # fmt: skip
    slice_ = min(form.dims, 64)
    _merge[(rows, heads, form.dims // slice_)](
        scratch.most, scratch.total, scratch.mixed, lengths, query if gate is None else gate, out, factor, form.window,
        *gate_at, form.each, heads, width, form.window > 0, form.parts, form.span, form.least, form.step,
        gate is not None, slice_, num_warps=2, **follow(out),
    )  # fmt: skip
