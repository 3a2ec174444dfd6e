# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""What a block drafter does between its products: short convolutions, heads, keys of kept tokens, attention of a block.

    keys of kept tokens, a ring of C positions   | 256 | 256 | ... |      one program a lane, key head and part
    keys of the block's own rows                                  | own |  the last part
    a tile holds all rows of a block times the heads of one key head; a second launch adds the parts of each row

How rows of a block round matters to no reply, so bits here are free to depend on a block's company.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow
from tensorfold.kernels.triton.rope import pair_of, turned

Tensor = Any
PART = 256


@triton.jit
def _mix(
    x,
    base,
    kernels,
    out,
    width,
    groups,
    group,
    length,
    branch: tl.constexpr,
    taps: tl.constexpr,
    block: tl.constexpr,
    early: tl.constexpr,
):
    begin(early)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = part * block + tl.arange(0, block)
    inside = place < width
    total = tl.zeros([block], tl.float32)
    for tap in tl.static_range(taps):
        if row % length >= tap:
            value = tl.load(x + (row - tap) * width + place, mask=inside, other=0.0).to(tl.float32)
            fixed = tl.load(base + (branch * taps + tap) * width + place, mask=inside, other=0.0)
            at = (row * 2 * taps + branch * taps + tap) * groups + place // group
            total += value * (fixed + tl.load(kernels + at, mask=inside, other=0.0).to(tl.float32))
    tl.store(out + row * width + place, total.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _head(source, weight, eps, position, turns, factor, width: tl.constexpr, pairs: tl.constexpr):
    """One head [D] in float32, normed with `weight` and turned."""
    dim = tl.arange(0, width)
    value = tl.load(source + dim).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / width + eps)
    value = value * scale * tl.load(weight + dim)
    if pairs > 0:
        _, partner = pair_of(dim, pairs, False)
        partner = tl.where(dim < 2 * pairs, partner, dim)
        other = tl.load(source + partner).to(tl.float32) * scale * tl.load(weight + partner)
        value = turned(value, other, dim, position, turns, factor, pairs, False)
    return value


@triton.jit
def _place_block(
    projected, positions, q_weight, k_weight, turns, query, keys, values, eps, factor, heads: tl.constexpr,
    groups: tl.constexpr, width: tl.constexpr, pairs: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    source = projected + (row * (heads + 2 * groups) + head) * width
    dim = tl.arange(0, width)
    position = tl.load(positions + row)
    if head < heads:
        value = _head(source, q_weight, eps, position, turns, factor, width, pairs)
        tl.store(query + (row * heads + head) * width + dim, value.to(query.dtype.element_ty))
    elif head < heads + groups:
        value = _head(source, k_weight, eps, position, turns, factor, width, pairs)
        tl.store(keys + (row * groups + head - heads) * width + dim, value.to(keys.dtype.element_ty))
    else:
        at = (row * groups + head - heads - groups) * width + dim
        tl.store(values + at, tl.load(source + dim).to(values.dtype.element_ty))


@triton.jit
def _place_context(
    projected, positions, lanes, k_weights, turns, rings, eps, factor, capacity, layers: tl.constexpr,
    groups: tl.constexpr, width: tl.constexpr, pairs: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    layer, kind, group = part // (2 * groups), part // groups % 2, part % groups
    source = projected + (row * layers * 2 * groups + part) * width
    position, lane = tl.load(positions + row), tl.load(lanes + row).to(tl.int64)
    dim = tl.arange(0, width)
    to = (((lane * layers + layer) * 2 + kind) * capacity + position % capacity) * groups + group
    if kind == 0:
        value = _head(source, k_weights + layer * width, eps, position, turns, factor, width, pairs)
        tl.store(rings + to * width + dim, value.to(rings.dtype.element_ty))
    else:
        tl.store(rings + to * width + dim, tl.load(source + dim).to(rings.dtype.element_ty))


@triton.jit
def _read(
    query, keys, values, rings, lanes, starts, most, total, mixed, scale, layer, layers, capacity, window, length,
    parts, causal: tl.constexpr, heads: tl.constexpr, groups: tl.constexpr, width: tl.constexpr, tile: tl.constexpr,
    part_keys: tl.constexpr, step: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    number, group, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    shared: tl.constexpr = heads // groups
    pair, dim, key = tl.arange(0, tile), tl.arange(0, width), tl.arange(0, step)
    row, head = pair // shared, group * shared + pair % shared
    real = row < length
    at_row = (number * length + row) * heads + head
    q = tl.load(query + at_row[:, None] * width + dim[None, :], mask=real[:, None], other=0.0)
    start, lane = tl.load(starts + number), tl.load(lanes + number).to(tl.int64)
    first = tl.maximum(start - window + 1, 0)
    own = part == parts - 1
    low = tl.where(own, 0, first + part * part_keys)
    high = tl.where(own, length, tl.minimum(first + (part + 1) * part_keys, start))
    top = tl.full([tile], float("-inf"), tl.float32)
    weights = tl.zeros([tile], tl.float32)
    acc = tl.zeros([tile, width], tl.float32)
    ring = rings + (lane * layers + layer) * 2 * capacity * groups * width
    for at_key in range(low, high, step):
        place = at_key + key
        held = place < high
        if own:
            at = ((number * length + place) * groups + group)[:, None] * width + dim[None, :]
            k = tl.load(keys + at, mask=held[:, None], other=0.0)
            v = tl.load(values + at, mask=held[:, None], other=0.0)
            seen = held[None, :] & real[:, None]
            if causal:
                seen = seen & (place[None, :] <= row[:, None])
        else:
            at = ((place % capacity) * groups + group)[:, None].to(tl.int64) * width + dim[None, :]
            k = tl.load(ring + at, mask=held[:, None], other=0.0)
            v = tl.load(ring + capacity * groups * width + at, mask=held[:, None], other=0.0)
            seen = held[None, :] & real[:, None] & (start + row[:, None] - place[None, :] < window)
        score = tl.where(seen, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        ground = tl.where(higher == float("-inf"), 0.0, higher)
        fade, weight = tl.exp(top - ground), tl.exp(score - ground[:, None])
        weights = weights * fade + tl.sum(weight, 1)
        acc = acc * fade[:, None] + tl.dot(weight.to(v.dtype), v)
        top = higher
    to = at_row * parts + part
    tl.store(most + to, top, mask=real)
    tl.store(total + to, weights, mask=real)
    tl.store(mixed + to[:, None] * width + dim[None, :], acc, mask=real[:, None])


@triton.jit
def _add_parts(most, total, mixed, out, parts, width: tl.constexpr, early: tl.constexpr):
    begin(early)
    at = tl.program_id(0).to(tl.int64)
    dim = tl.arange(0, width)
    top, weights, acc = float("-inf"), 0.0, tl.zeros([width], tl.float32)
    for part in range(parts):
        theirs = tl.load(most + at * parts + part)
        if theirs > float("-inf"):
            higher = tl.maximum(top, theirs)
            mine, other = tl.exp(top - higher), tl.exp(theirs - higher)
            weights = weights * mine + tl.load(total + at * parts + part) * other
            acc = acc * mine + tl.load(mixed + (at * parts + part) * width + dim) * other
            top = higher
    tl.store(out + at * width + dim, (acc / weights).to(out.dtype.element_ty))


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention heads of one layer: weights float32 [D] of their norms, and turns float64 [pairs] a position."""

    heads: int
    groups: int
    width: int
    scale: float
    eps: float
    q_norm: Tensor
    k_norm: Tensor
    turns: Tensor
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Rings:
    """Keys and values of kept tokens: `rings` [lanes, layers, 2, C, G, D], position p at p % C; `window` as planned."""

    rings: Tensor
    window: int

    @property
    def capacity(self) -> int:
        """C."""
        return int(self.rings.shape[3])

    @property
    def layers(self) -> int:
        """Layers."""
        return int(self.rings.shape[1])


def mix_rows(x: Tensor, base: Tensor, kernels: Tensor, branch: int, length: int, out: Tensor) -> None:
    """`out` [R, D]: rows of blocks of `length` mixed with those before them in their block.

    `base` float32 [2, taps, D]; `kernels` [R, 2 * taps * groups], those of each row, one a group of channels.
    """
    rows, width = x.shape
    taps = base.shape[1]
    groups = kernels.shape[1] // (2 * taps)
    grid = (rows, triton.cdiv(width, 1024))
    _mix[grid](
        x, base, kernels, out, width, groups, width // groups, length, branch, taps, 1024, num_warps=4, **follow(out)
    )


def place_block(form: Heads, projected: Tensor, positions: Tensor, query: Tensor, keys: Tensor, values: Tensor) -> None:
    """A block's heads: `query` [R, H, D], `keys` and `values` [R, G, D] of `projected` [R, (H + 2 G) * D]."""
    pairs = form.turns.shape[0]
    _place_block[(query.shape[0], form.heads + 2 * form.groups)](
        projected, positions, form.q_norm, form.k_norm, form.turns, query, keys, values, form.eps, form.factor,
        form.heads, form.groups, form.width, pairs, num_warps=1, **follow(query),
    )  # fmt: skip


def place_context(
    form: Heads, k_norms: Tensor, projected: Tensor, positions: Tensor, lanes: Tensor, rings: Rings
) -> None:
    """Keys and values of kept tokens into `rings`: `projected` [n, layers * 2 * G * D], keys before values.

    `positions` and `lanes` int32 [n]; `k_norms` float32 [layers, D].
    """
    _place_context[(projected.shape[0], rings.layers * 2 * form.groups)](
        projected, positions, lanes, k_norms, form.turns, rings.rings, form.eps, form.factor, rings.capacity,
        rings.layers, form.groups, form.width, form.turns.shape[0], num_warps=1, **follow(projected),
    )  # fmt: skip


def read_block(
    form: Heads, query: Tensor, keys: Tensor, values: Tensor, rings: Rings, layer: int, lanes: Tensor, starts: Tensor,
    causal: bool, out: Tensor,
) -> None:  # fmt: skip
    """`out` [B * L, H, D]: rows of B blocks over the kept tokens of their lanes and over their own rows.

    `lanes` and `starts` int32 [B]: each block's ring, and the position of its first row.
    """
    rows, blocks = query.shape[0], lanes.shape[0]
    length = rows // blocks
    parts = triton.cdiv(min(rings.window - 1, rings.capacity), PART) + 1
    tile = max(16, triton.next_power_of_2(length * form.heads // form.groups))
    kind, shape = form.q_norm.dtype, (rows, form.heads, parts)
    most, total = query.new_empty(shape, dtype=kind), query.new_empty(shape, dtype=kind)
    mixed = query.new_empty((*shape, form.width), dtype=kind)
    _read[(blocks, form.groups, parts)](
        query, keys, values, rings.rings, lanes, starts, most, total, mixed, form.scale, layer, rings.layers,
        rings.capacity, rings.window, length, parts, causal, form.heads, form.groups, form.width, tile, PART, 64,
        num_warps=4 if tile <= 64 else 8, **follow(out),
    )  # fmt: skip
    _add_parts[(rows * form.heads,)](most, total, mixed, out, parts, form.width, num_warps=1, **follow(out))
