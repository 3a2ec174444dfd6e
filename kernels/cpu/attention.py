"""Attention over cached keys on a CPU, in blocks of keys cut at fixed absolute positions.

Every (key head, block) is its own small product, block results are added in position order, and keys a row may not see
weigh exactly zero; so a row's bits depend on its own keys alone, not on how many rows or later keys stand beside it.
Knows no lane and no tree: callers hand over blocks in position order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.cpu.row_steps import SIZES, exact_steps, row_calls
from tensorfold.kernels.cpu.workers import Workers

Rows = NDArray[np.float32]
Block = tuple[Rows, Rows]
NEVER = np.float32(-np.inf)
BLOCK = 64
"""Keys per block: of 32 to 512 the fastest for one row of 64-wide heads, and within a quarter of the best for many."""
_ALONE = 512
"""Queries times blocks below which handing groups to other threads costs more than it saves."""


@dataclass(frozen=True, slots=True)
class Sight:
    """What each query may read: positions up to its own and, with a `window` W, the last W of them.

    `positions` are the queries' own [P]; `first` is the absolute position of the first key handed over.
    """

    positions: NDArray[np.int64]
    first: int
    window: int = 0


class BlockedAttention:
    """Softmax attention of `queries` over key blocks; `steps` are the query counts that keep a query's bits."""

    def __init__(self, head_dim: int, workers: Workers, steps: tuple[int, ...] | None = None) -> None:
        self.head_dim = head_dim
        self._workers = workers
        self.steps = self._measured() if steps is None else steps

    def __call__(self, queries: Rows, blocks: Sequence[Block], sight: Sight) -> Rows:
        """Results [G, P, D] of `queries` [G, P, D], already scaled, over blocks of keys and values [G, b, BLOCK, D]."""
        groups, count, _ = queries.shape
        out = np.empty_like(queries)

        def read(start: int, stop: int) -> None:
            own = [(keys[start:stop], values[start:stop]) for keys, values in blocks]
            self._read(queries[start:stop], own, sight, out[start:stop])

        if groups * count * sum(keys.shape[1] for keys, _ in blocks) < _ALONE:
            read(0, groups)
        else:
            self._workers.share(groups, read)
        return out

    def _read(self, queries: Rows, blocks: Sequence[Block], sight: Sight, out: Rows) -> None:
        groups, count, dim = queries.shape
        for start, stop, size in row_calls(count, self.steps):
            part = np.zeros((groups, size, dim), np.float32)
            part[:, : stop - start] = queries[:, start:stop]
            positions = np.full(size, sight.positions[stop - 1])
            positions[: stop - start] = sight.positions[start:stop]
            made = _attend(part, blocks, Sight(positions, sight.first, sight.window))
            out[:, start:stop] = made[:, : stop - start]

    def _measured(self) -> tuple[int, ...]:
        generator = np.random.default_rng(self.head_dim)
        keys, values = generator.standard_normal((2, 1, 2, BLOCK, self.head_dim)).astype(np.float32)
        samples = generator.standard_normal((max(SIZES), self.head_dim)).astype(np.float32)

        def call(rows: Rows) -> Rows:
            sight = Sight(np.full(len(rows), 2 * BLOCK - 3), 0)
            made: Rows = _attend(rows[None], [(keys, values)], sight)[0]
            return made

        return exact_steps(call, samples)


def _attend(queries: Rows, blocks: Sequence[Block], sight: Sight) -> Rows:
    scores = _scores(queries, blocks)
    _hide(scores, sight)
    scores -= scores.max(axis=(1, 3), keepdims=True)
    np.exp(scores, out=scores)
    weights = np.add.reduce(scores, axis=3)
    total, mixed = np.zeros_like(weights[:, 0]), np.zeros_like(queries)
    at = 0
    for _, values in blocks:
        part = np.matmul(scores[:, at : at + values.shape[1]], values)
        for b in range(values.shape[1]):  # in position order, whatever number of blocks there is
            mixed += part[:, b]
            total += weights[:, at + b]
        at += values.shape[1]
    mixed /= total[..., None]
    return mixed


def _scores(queries: Rows, blocks: Sequence[Block]) -> Rows:
    """Products of queries and keys, [G, blocks, P, BLOCK]."""
    groups, count, _ = queries.shape
    total = sum(keys.shape[1] for keys, _ in blocks)
    scores = np.empty((groups, total, count, BLOCK), np.float32)
    at = 0
    for keys, _ in blocks:
        np.matmul(queries[:, None], keys.swapaxes(-1, -2), out=scores[:, at : at + keys.shape[1]])
        at += keys.shape[1]
    return scores


def _hide(scores: Rows, sight: Sight) -> None:
    """Set the scores of keys a query may not read to minus infinity."""
    own = sight.positions[None, :, None]
    late = max(0, (int(sight.positions.min()) + 1 - sight.first) // BLOCK)
    if late < scores.shape[1]:
        np.copyto(scores[:, late:], NEVER, where=_keys(sight.first, late, scores.shape[1]) > own)
    if sight.window:
        early = (int(sight.positions.max()) - sight.window - sight.first) // BLOCK + 1
        if early > 0:
            np.copyto(scores[:, :early], NEVER, where=_keys(sight.first, 0, early) <= own - sight.window)


def _keys(first: int, start: int, stop: int) -> NDArray[np.int64]:
    """Absolute positions of the keys of blocks start..stop, [stop - start, 1, BLOCK]."""
    return (first + np.arange(start * BLOCK, stop * BLOCK)).reshape(stop - start, 1, BLOCK)
