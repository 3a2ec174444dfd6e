# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-not-found,no-untyped-call,unused-ignore"
"""What a draft head's next pass reads, filled on the device from the rows of a launch that stand: no host between.

A path tells which rows of a window stand and which token is pending behind them. Entries of a chain and kept tokens of
a block drafter are laid out as the host lays them out: lane behind lane without a gap, nobody's rows behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

from tensorfold.kernels.triton.following import begin, follow

Tensor = Any
MOST_STREAMS = 6  # that a block drafter's launch reads
PART = 2048
CHAIN_FACTS, BLOCK_FACTS = 6, 4
# One machine code for every number of rows and lanes, wherever their fields lie: none is compiled in a round.
_LOOSE = {
    "do_not_specialize": ["lanes", "all_lanes", "rows", "nobody", "nobody_row", "length"],
    "do_not_specialize_on_alignment": [
        "facts", "kept", "tokens", "ids", "sources", "row_lanes", "slots", "positions", "lengths", "committed", "path",
        "lasts", "next_positions", "next_lengths", "next_committed", "next_slots", "next_path", "draws_at", "rings",
        "starts", "pending",
    ],
}  # fmt: skip


@triton.jit
def _lengths(facts, kept, lanes, stride, each: tl.constexpr, block: tl.constexpr):
    """Of each lane how many rows stand: lines of `kept` are the first of a lane's `each` facts."""
    lane = tl.arange(0, block)
    line = tl.load(facts + lane * each, mask=lane < lanes, other=0)
    return tl.where(lane < lanes, tl.load(kept + line * stride, mask=lane < lanes, other=0), 0)


@triton.jit
def _ends(counts, block: tl.constexpr):
    """Running totals, each its own included."""
    lane = tl.arange(0, block)
    return tl.sum(tl.where(lane[None, :] <= lane[:, None], counts[None, :], 0), 1)


@triton.jit(**_LOOSE)
def _enter_chains(
    kept, tokens, facts, stream, pool, ids, sources, row_lanes, slots, positions, lengths, committed, path, lasts,
    next_positions, next_lengths, next_committed, next_slots, next_path, draws_at, lanes, all_lanes, rows, width, wide,
    stride, shift, nobody, nobody_row, block: tl.constexpr, most: tl.constexpr, part: tl.constexpr,
    early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, piece = tl.program_id(0), tl.program_id(1)
    lane, column = tl.arange(0, block), tl.arange(0, most)
    stands = _lengths(facts, kept, lanes, stride, 6, block)
    entries = tl.where(lane < lanes, stands + 1, 0)
    ends = _ends(entries, block)
    if row + piece == 0:
        real = lane < lanes
        tl.store(lasts + lane, tl.where(real, ends - 1, rows - 1), mask=lane < all_lanes)
        tl.store(next_positions + lane, tl.load(next_positions + lane, mask=real, other=0) + stands, mask=real)
        tl.store(next_lengths + lane, tl.load(next_lengths + lane, mask=real, other=0) + stands, mask=real)
        tl.store(next_committed + lane, tl.load(next_committed + lane, mask=real, other=0) + stands, mask=real)
        tl.store(next_slots + lane, tl.load(next_slots + lane, mask=real, other=0) + stands, mask=real)
        tl.store(draws_at + lane, tl.load(draws_at + lane, mask=real, other=0) + stands, mask=real)
        inside = real[:, None] & (column < wide)[None, :]
        way = next_path + lane[:, None] * wide + column[None, :]
        tl.store(way, tl.load(way, mask=inside, other=0) + stands[:, None], mask=inside)
    own = tl.sum(((lane < lanes) & (ends <= row)).to(tl.int32), 0)
    entry = row - tl.sum(tl.where(lane < own, entries, 0), 0)
    if own < lanes:
        line = kept + tl.load(facts + own * 6) * stride
        start, first = tl.load(facts + own * 6 + 1), tl.load(facts + own * 6 + 3)
        room = tl.load(facts + own * 6 + 5)
        count = tl.load(line)
        if entry > 0:
            source = (start + tl.load(line + 1 + entry)).to(tl.int64)
            target = (room + entry - 1).to(tl.int64)
            place = piece * part + tl.arange(0, part)
            value = tl.load(stream + source * width + place, mask=place < width, other=0.0)
            tl.store(pool + target * width + place, value, mask=place < width)
        if piece == 0:
            token = tl.load(line + 1)
            if entry < count:
                token = tl.load(tokens + start + tl.load(line + 2 + entry))
            held = tl.load(facts + own * 6 + 4)
            tl.store(ids + row, tl.maximum(token, 0))
            tl.store(sources + row, tl.where(entry == 0, held, room + entry - 1))
            tl.store(row_lanes + row, tl.load(facts + own * 6 + 2))
            tl.store(slots + row, first + entry)
            tl.store(positions + row, first + entry + shift)
            tl.store(lengths + row, first + entry + 1)
            tl.store(committed + row, first)
            tl.store(path + row * wide + column, first + column, mask=column < wide)
    elif piece == 0:
        tl.store(ids + row, 0)
        tl.store(sources + row, nobody_row)
        tl.store(row_lanes + row, nobody)
        tl.store(slots + row, 0)
        tl.store(positions + row, 0)
        tl.store(lengths + row, 1)
        tl.store(committed + row, 0)
        tl.store(path + row * wide + column, tl.zeros([most], tl.int32), mask=column < wide)


@triton.jit(**_LOOSE)
def _keep_tokens(
    kept, facts, first, second, third, fourth, fifth, sixth, tapped, positions, rings, lanes, width, stride, row_stride,
    nobody, taps: tl.constexpr, block: tl.constexpr, part: tl.constexpr, early: tl.constexpr,
):  # fmt: skip
    begin(early)
    row, piece = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, block)
    stands = _lengths(facts, kept, lanes, stride, 4, block)
    ends = _ends(stands, block)
    own = tl.sum(((lane < lanes) & (ends <= row)).to(tl.int32), 0)
    entry = row - tl.sum(tl.where(lane < own, stands, 0), 0)
    if own < lanes:
        line = kept + tl.load(facts + own * 4) * stride
        source = (tl.load(facts + own * 4 + 1) + tl.load(line + 2 + entry)).to(tl.int64)
        place = piece * part + tl.arange(0, part)
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
            value = tl.load(stream + source * width + place, mask=place < width, other=0.0)
            tl.store(tapped + row * row_stride + tap * width + place, value, mask=place < width)
        if piece == 0:
            tl.store(positions + row, (tl.load(facts + own * 4 + 3) + entry).to(tl.int32))
            tl.store(rings + row, tl.load(facts + own * 4 + 2))
    elif piece == 0:
        tl.store(positions + row, 0)
        tl.store(rings + row, nobody)


@triton.jit(**_LOOSE)
def _start_blocks(
    kept, facts, ids, positions, starts, pending, lanes, stride, length, block: tl.constexpr, most: tl.constexpr,
    early: tl.constexpr,
):  # fmt: skip
    begin(early)
    lane, column = tl.arange(0, block), tl.arange(0, most)
    real = lane < lanes
    line = tl.load(facts + lane * 4, mask=real, other=0)
    stands = _lengths(facts, kept, lanes, stride, 4, block)
    token = tl.maximum(tl.load(kept + line * stride + 1, mask=real, other=0), 0)
    tl.store(pending + lane, token, mask=real)
    tl.store(ids + lane * length, token, mask=real)
    tl.store(starts + lane, tl.load(starts + lane, mask=real, other=0) + stands, mask=real)
    inside = real[:, None] & (column < length)[None, :]
    at = positions + lane[:, None] * length + column[None, :]
    tl.store(at, tl.load(at, mask=inside, other=0) + stands[:, None], mask=inside)


@dataclass(frozen=True, slots=True)
class EntryRows:
    """The rows of a pass that enters, int32 [R] each but `path` [R, W]; `lasts` int32 [L]: each lane's last row.

    `sources` are the flat rows of the pool that entries join with.
    """

    ids: Tensor
    sources: Tensor
    lanes: Tensor
    slots: Tensor
    positions: Tensor
    lengths: Tensor
    committed: Tensor
    path: Tensor
    lasts: Tensor


@dataclass(frozen=True, slots=True)
class NextRows:
    """The next row of each of L chains, as if no row stood: int32 [L] but `path` [L, W] and `draws_at` int64 [L]."""

    positions: Tensor
    lengths: Tensor
    committed: Tensor
    slots: Tensor
    path: Tensor
    draws_at: Tensor


@dataclass(frozen=True, slots=True)
class Nobody:
    """What rows that are nobody's are given: a lane slot and a row of the pool; `shift` is added to every position."""

    slot: int
    row: int
    shift: int


def enter_chains(
    kept: Tensor, tokens: Tensor, facts: Tensor, lanes: int, stream: Tensor, pool: Tensor, rows: EntryRows,
    following: NextRows, nobody: Nobody,
) -> None:  # fmt: skip
    """Rows of a launch that stand go into `pool`, and `rows` and `following` become those of the pass behind them.

    `kept` int32 [N, 2 + W]: of each window how many rows stand, its pending token, those rows. `tokens` int32 are those
    of the launch's rows, `stream` [R, D] what is tapped of them. `facts` int32 [L, 6], of which `lanes` count: line of
    `kept`, first row in the launch, lane slot, entries so far, the row of the pool that waits for its token, and where
    the rows that stand go in the pool.
    """
    count, wide = rows.path.shape
    all_lanes, width = len(rows.lasts), stream.shape[1]
    block = max(2, triton.next_power_of_2(all_lanes))
    _enter_chains[(count, triton.cdiv(width, PART))](
        kept, tokens, facts, stream, pool, rows.ids, rows.sources, rows.lanes, rows.slots, rows.positions, rows.lengths,
        rows.committed, rows.path, rows.lasts, following.positions, following.lengths, following.committed,
        following.slots, following.path, following.draws_at, lanes, all_lanes, count, width, wide, kept.shape[1],
        nobody.shift, nobody.slot, nobody.row, block, triton.next_power_of_2(wide), PART, num_warps=4, **follow(pool),
    )  # fmt: skip


def keep_tokens(
    kept: Tensor, facts: Tensor, lanes: int, streams: Sequence[Tensor], tapped: Tensor, positions: Tensor,
    rings: Tensor, nobody: int,
) -> None:  # fmt: skip
    """Rows of a launch that stand go into `tapped` [R, streams * D], side by side; nobody's come behind them.

    `facts` int32 [L, 4], of which `lanes` count: line of `kept`, first row in the launch, ring, tokens so far.
    `positions` and `rings` int32 [R] are where the keys of each row go.
    """
    width, count = streams[0].shape[1], len(positions)
    block = max(2, triton.next_power_of_2(lanes))
    for start in range(0, len(streams), MOST_STREAMS):
        part = streams[start : start + MOST_STREAMS]
        given = [*part, *[part[0]] * (MOST_STREAMS - len(part))]
        _keep_tokens[(count, triton.cdiv(width, PART))](
            kept, facts, *given, tapped[:, start * width :], positions, rings, lanes, width, kept.shape[1],
            tapped.shape[1], nobody, len(part), block, PART, num_warps=4, **follow(tapped),
        )  # fmt: skip


def start_blocks(
    kept: Tensor, facts: Tensor, lanes: int, ids: Tensor, positions: Tensor, starts: Tensor, pending: Tensor
) -> None:
    """Blocks that begin behind no kept row begin behind those that stand, with their pending tokens.

    `facts` as `keep_tokens` has them; `ids` and `positions` int32 [B * length], `starts` and `pending` int32 [B].
    """
    length = len(ids) // len(starts)
    block = max(2, triton.next_power_of_2(lanes))
    _start_blocks[(1,)](
        kept, facts, ids, positions, starts, pending, lanes, kept.shape[1], length, block,
        triton.next_power_of_2(length), num_warps=1, **follow(ids),
    )  # fmt: skip
