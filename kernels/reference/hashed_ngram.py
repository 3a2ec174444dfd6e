"""The hashed n-gram table in exact integers and float64, one token at a time.

Ids are int64 arithmetic that wraps around; a segment ends with its boundary token, and n-grams do not reach over it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import sigmoid

Floats = NDArray[np.float64]
_WORD, _SIGN = 1 << 64, 1 << 63
_LEAST_GATE = 1e-6


def seen_tokens(history: Sequence[int], token: int, boundary: int) -> list[int]:
    """The token, then those before it, newest first; everything at and before a boundary token reads as one.

    `history` are the tokens before it, oldest first.
    """
    seen = [token]
    for earlier in reversed(history):
        crossed = len(seen) > 1 and seen[-1] == boundary
        seen.append(boundary if crossed else earlier)
    return seen


def ngram_rows(
    seen: Sequence[int], multipliers: Sequence[int], table_sizes: Sequence[int], heads_per_ngram: int
) -> list[int]:
    """Row numbers of every head: for n = 2, 3, ... the heads of n-grams, each below its own table size.

    The products of the last n tokens and their multipliers are xored, and taken modulo the head's size; a head's rows
    stand behind those of the heads before it.
    """
    rows: list[int] = []
    offset = 0
    mixed = wrapped(int(seen[0]) * multipliers[0])
    for n in range(2, len(multipliers) + 1):
        mixed ^= wrapped(int(seen[n - 1]) * multipliers[n - 1])
        for _ in range(heads_per_ngram):
            size = table_sizes[len(rows)]
            rows.append(mixed % size + offset)
            offset += size
    return rows


def wrapped(value: int) -> int:
    """An integer as int64 holds it."""
    return (value + _SIGN) % _WORD - _SIGN


def gated_value(key: Floats, query: Floats, value: Floats) -> Floats:
    """For each stream, `value` [D] times sigmoid of the signed root of key . query / sqrt(D).

    `key` and `query` [S, D] are normed; the root is taken of at least 1e-6.
    """
    closeness = (key * query).sum(axis=1) / np.sqrt(key.shape[1])
    rooted = np.sign(closeness) * np.sqrt(np.maximum(np.abs(closeness), _LEAST_GATE))
    return np.outer(sigmoid(rooted), value)
