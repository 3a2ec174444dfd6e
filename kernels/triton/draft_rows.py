# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""Rows of a draft chain: a kept row joined with an embedding, and the token just drawn becoming the next row.

A chain goes on without the host: one program moves all its lanes a place on. Nothing of a reply depends on these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow

Tensor = Any
MOST_STREAMS = 6  # that one launch reads


@triton.jit
def _advance(
    tokens, shares, ids, positions, lengths, committed, slots, path, draws_at, step, told, told_shares, lanes, width,
    block: tl.constexpr, wide: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    lane, column = tl.arange(0, block), tl.arange(0, wide)
    real = lane < lanes
    token = tl.load(tokens + lane, mask=real, other=0)
    at = tl.load(step)
    tl.store(told + at * lanes + lane, token, mask=real)
    tl.store(told_shares + at * lanes + lane, tl.load(shares + lane, mask=real, other=0.0), mask=real)
    tl.store(ids + lane, tl.maximum(token, 0), mask=real)
    tl.store(positions + lane, tl.load(positions + lane, mask=real, other=0) + 1, mask=real)
    tl.store(lengths + lane, tl.load(lengths + lane, mask=real, other=0) + 1, mask=real)
    tl.store(committed + lane, tl.load(committed + lane, mask=real, other=0) + 1, mask=real)
    tl.store(slots + lane, tl.load(slots + lane, mask=real, other=0) + 1, mask=real)
    tl.store(draws_at + lane, tl.load(draws_at + lane, mask=real, other=0) + 1, mask=real)
    inside = real[:, None] & (column < width)[None, :]
    way = path + lane[:, None] * width + column[None, :]
    tl.store(way, tl.load(way, mask=inside, other=0) + 1, mask=inside)
    tl.debug_barrier()
    tl.store(step, at + 1)


@triton.jit
def _join(
    embedded, hidden, slots, e_weight, h_weight, out, width, e_eps, h_eps, first_is_zero: tl.constexpr,
    block: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, half = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = tl.arange(0, block)
    inside = place < width
    if half == 0:
        value = tl.load(embedded + row * width + place, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(e_weight + place, mask=inside, other=0.0)
        eps = e_eps
        if first_is_zero:
            value = tl.where(tl.load(slots + row) > 0, value, 0.0)
    else:
        value = tl.load(hidden + row * width + place, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(h_weight + place, mask=inside, other=0.0)
        eps = h_eps
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / width + eps)
    to = out + (row * 2 + half) * width + place
    tl.store(to, (value * scale * weight).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _take(
    first, second, third, fourth, fifth, sixth, sources, targets, out, width, stride, taps: tl.constexpr,
    block: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, place = tl.program_id(0), tl.program_id(1) * block + tl.arange(0, block)
    source, target = tl.load(sources + row).to(tl.int64), tl.load(targets + row).to(tl.int64)
    inside = place < tl.where(source >= 0, width, 0)
    for tap in tl.static_range(taps):
        stream = first
        if tap == 1:
            stream = second
        elif tap == 2:
            stream = third
        elif tap == 3:
            stream = fourth
        elif tap == 4:
            stream = fifth
        elif tap == 5:
            stream = sixth
        value = tl.load(stream + source * width + place, mask=inside, other=0.0)
        tl.store(out + target * stride + tap * width + place, value, mask=inside)


def take_rows(streams: Sequence[Tensor], sources: Tensor, targets: Tensor, count: int, out: Tensor) -> None:
    """Rows of `streams` [R, D], side by side, into rows of `out` [N, streams * D].

    `sources` and `targets` int32: of `count` rows, the row of every stream and the row of `out`; a source of -1 is left
    out.
    """
    width = streams[0].shape[1]
    grid = (count, triton.cdiv(width, 2048))
    for start in range(0, len(streams), MOST_STREAMS):
        part = streams[start : start + MOST_STREAMS]
        given = [*part, *[part[0]] * (MOST_STREAMS - len(part))]
        to = out[:, start * width :]
        _take[grid](*given, sources, targets, to, width, out.shape[1], len(part), 2048, num_warps=4, **follow(out))


@dataclass(frozen=True, slots=True)
class ChainRows:
    """The next row of each of B chains, on the device: int32 [B] but `path` int32 [B, W] and `draws_at` int64 [B]."""

    ids: Tensor
    positions: Tensor
    lengths: Tensor
    committed: Tensor
    slots: Tensor
    path: Tensor
    draws_at: Tensor


def advance(tokens: Tensor, shares: Tensor, rows: ChainRows, step: Tensor, told: Tensor, told_shares: Tensor) -> None:
    """Enter the draws `tokens` int32 [B] with `shares` float32 [B] as step `step` int32 [1], and go on to the next.

    `told` int32 and `told_shares` float32 [steps, B] keep them. Every row moves one place on; a chain that drew nothing
    (-1) goes on with id 0.
    """
    lanes, width = rows.path.shape
    _advance[(1,)](
        tokens, shares, rows.ids, rows.positions, rows.lengths, rows.committed, rows.slots, rows.path, rows.draws_at,
        step, told, told_shares, lanes, width, triton.next_power_of_2(lanes), triton.next_power_of_2(width),
        num_warps=4, **follow(tokens),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Norms:
    """Weights float32 [D] and eps of the norms of embeddings and of rows; whether a first entry's embedding is zero."""

    embedding: Tensor
    hidden: Tensor
    embedding_eps: float
    hidden_eps: float
    first_is_zero: bool = False


def join_rows(embedded: Tensor, hidden: Tensor, slots: Tensor, norms: Norms, out: Tensor) -> None:
    """`out` [R, 2 D]: the normed `embedded` [R, D] beside the normed `hidden` [R, D]; entry 0 stands at slot 0."""
    rows, width = hidden.shape
    _join[(rows, 2)](
        embedded, hidden, slots, norms.embedding, norms.hidden, out, width, norms.embedding_eps, norms.hidden_eps,
        norms.first_is_zero, triton.next_power_of_2(width), num_warps=4, **follow(out),
    )  # fmt: skip
