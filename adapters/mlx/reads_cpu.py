"""Reads of cached rows and scores of blocks in numpy, in pieces of fixed size.

Invariant: no product's shape depends on how many rows or later keys stand beside a row. A row that chooses its blocks
gathers them and reads them alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.reads import Reads
from tensorfold.kernels.cpu.attention import BLOCK, Block, BlockedAttention, Sight

Rows = NDArray[np.float32]
Parts = Sequence[Rows]


def read_past(reader: BlockedAttention, queries: Rows, keys: Parts, values: Parts, reads: Reads[Rows]) -> Rows:
    """Results [R, H, D] of `queries` [R, H, D] over `keys` and `values`, parts [G, T, D]; see `RowOps.read`."""
    scaled = queries * np.float32(reads.scale)
    if reads.chosen is None:
        return _attend(reader, scaled, _blocks(keys, values, reads.stop), reads.positions)
    made = np.empty_like(scaled)
    for row, chosen in enumerate(reads.chosen):
        own = _read_by(chosen, reads.ratio, int(reads.positions[row]))
        gathered = [_gathered(keys, own)]
        gathered.append(gathered[0] if values is keys else _gathered(values, own))
        last = np.array([len(own) - 1])
        made[row : row + 1] = _attend(reader, scaled[row : row + 1], [(gathered[0], gathered[1])], last)
    return made


def score_blocks(queries: Rows, keys: Parts, weights: Rows | None) -> Rows:
    """Scores [R, B]: over heads the sum of relu(query . key), each times its weight; see `RowOps.block_scores`."""
    count = sum(part.shape[1] for part in keys)
    blocks = _padded(keys, 0, count)[0]
    products = np.matmul(queries[:, None], blocks.swapaxes(-1, -2))
    np.maximum(products, np.float32(0.0), out=products)
    if weights is not None:
        products *= weights[:, None, :, None]
    total: Rows = products[:, :, 0].copy()
    for head in range(1, products.shape[2]):
        total += products[:, :, head]
    return total.reshape(len(queries), -1)[:, :count]


def _attend(reader: BlockedAttention, queries: Rows, blocks: Sequence[Block], positions: NDArray[np.int64]) -> Rows:
    """Attention of queries [R, H, D], already scaled, over blocks whose first key stands at position 0."""
    rows, heads, dim = queries.shape
    groups = blocks[0][0].shape[0]
    shared = heads // groups
    grouped = queries.reshape(rows, groups, shared, dim).transpose(1, 0, 2, 3)
    flat = np.ascontiguousarray(grouped).reshape(groups, rows * shared, dim)
    made = reader(flat, blocks, Sight(np.repeat(positions, shared), 0))
    back = made.reshape(groups, rows, shared, dim).transpose(1, 0, 2, 3)
    return np.ascontiguousarray(back).reshape(rows, heads, dim)


def _blocks(keys: Parts, values: Parts, stop: int) -> list[Block]:
    """The first `stop` keys: whole blocks where they stand, the rest and all later parts copied behind them."""
    edge = min(stop, keys[0].shape[1]) // BLOCK * BLOCK
    found: list[Block] = []
    if edge:
        found.append((_whole(keys[0], edge), _whole(values[0], edge)))
    if stop > edge:
        tail = _padded(keys, edge, stop)
        found.append((tail, tail if values is keys else _padded(values, edge, stop)))
    return found


def _whole(part: Rows, edge: int) -> Rows:
    """[G, T, D] seen as [G, edge / BLOCK, BLOCK, D]."""
    return part[:, :edge].reshape(part.shape[0], edge // BLOCK, BLOCK, part.shape[2])


def _padded(parts: Parts, start: int, stop: int) -> Rows:
    """Keys start..stop of parts as blocks [G, b, BLOCK, D], zeros behind them."""
    made = _room(parts, stop - start)
    at = 0
    for part in parts:
        low, high = max(start - at, 0), min(stop - at, part.shape[1])
        if low < high:
            made[:, at + low - start : at + high - start] = part[:, low:high]
        at += part.shape[1]
    return _whole(made, made.shape[1])


def _gathered(parts: Parts, own: NDArray[np.int64]) -> Rows:
    """The keys at `own`, ascending, as blocks [G, b, BLOCK, D], zeros behind them."""
    made = _room(parts, len(own))
    at = filled = 0
    for part in parts:
        here = own[(own >= at) & (own < at + part.shape[1])] - at
        made[:, filled : filled + len(here)] = part[:, here]
        filled += len(here)
        at += part.shape[1]
    return _whole(made, made.shape[1])


def _room(parts: Parts, count: int) -> Rows:
    return np.zeros((parts[0].shape[0], -(-count // BLOCK) * BLOCK, parts[0].shape[2]), np.float32)


def _read_by(chosen: NDArray[np.bool_], ratio: int, position: int) -> NDArray[np.int64]:
    """Positions, ascending, that a row reads: its blocks, then its unfinished tail."""
    blocks = np.flatnonzero(chosen)[:, None] * ratio + np.arange(ratio)
    return np.concatenate([blocks.ravel(), np.arange((position + 1) // ratio * ratio, position + 1)])
