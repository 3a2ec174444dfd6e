"""Token rows and logits: the multiplier's rounding, the soft cap, and a table that is held once for both."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.adapters.mlx.blocks.embedding import EmbeddingBlock
from tensorfold.adapters.mlx.blocks.head import HeadBlock
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.weights import Codes, Matrix, Values
from tensorfold.domain.families.plans import Embedding, Head
from tensorfold.kernels.reference.activations import soft_cap
from tests.adapters.mlx.blocks.held_op import arithmetics, rows_of

VOCABULARY, WIDTH = 40, 64
OPS = arithmetics()
MULTIPLIER = 2816**0.5


def table(seed: int = 1, size: float = 1.0) -> Matrix:
    return Matrix(Values(size * rows_of(seed, VOCABULARY, WIDTH), "F32"), (VOCABULARY, WIDTH))


def coded() -> Matrix:
    words, scales, biases = (np.array(part) for part in mx.quantize(mx.array(rows_of(1, VOCABULARY, WIDTH)), 32, 4))
    return Matrix(Codes(words, scales, biases, 4, 32, "F32"), (VOCABULARY, WIDTH))


def test_the_multiplier_is_rounded_to_the_rows_dtype_first() -> None:
    ids, plan = np.array([3, 0, 39]), Embedding(VOCABULARY, WIDTH, MULTIPLIER)
    stored: Any = table().stored.raw  # type: ignore[union-attr]
    halves = LibraryRows("bfloat16")
    made = halves.host(EmbeddingBlock(halves, plan, table())(ids))
    rounded = np.array(mx.array(stored[ids]).astype(mx.bfloat16).astype(mx.float32))
    assert np.array_equal(made, np.array(mx.array(53.0 * rounded).astype(mx.bfloat16).astype(mx.float32)))
    exact = CpuRows()
    assert np.array_equal(EmbeddingBlock(exact, plan, table())(ids), stored[ids] * np.float32(MULTIPLIER))


@pytest.mark.parametrize("name", sorted(OPS))
def test_a_tied_head_reads_the_rows_before_the_multiplier_and_bends_them(name: str) -> None:
    ops, tied = OPS[name], table(size=4.0)
    rows = EmbeddingBlock(ops, Embedding(VOCABULARY, WIDTH, 0.5), tied)(np.arange(9))
    head = HeadBlock(ops, Head(VOCABULARY, tied=True, softcap=30.0), tied)
    made = head.host(head(rows))
    raw: Any = tied.stored.raw  # type: ignore[union-attr]
    wanted = soft_cap((0.5 * raw[:9].astype(np.float64)) @ raw.astype(np.float64).T, 30.0)
    assert np.abs(wanted).max() > 29.9
    assert np.abs(made - wanted).max() <= 2e-5
    assert np.array_equal(made, np.concatenate([head.host(head(rows[i : i + 1])) for i in range(9)]))
    open_ended = HeadBlock(ops, Head(VOCABULARY, tied=True), tied)
    assert np.abs(open_ended.host(open_ended(rows))).max() > 100


@pytest.mark.parametrize("matrix", [table(), coded()], ids=["dense", "codes"])
def test_a_table_is_held_once_for_a_tied_head(matrix: Matrix) -> None:
    ops = LibraryRows("float32")
    ops.embedding(matrix)
    held = ops._table
    assert held is not None
    assert all(again is first for again, first in zip(ops._placed(matrix.stored), held[1], strict=True))
    ops.embedding(matrix)
    ops.product([table(2)])
    assert ops._table is None


@pytest.mark.parametrize("way", ["unpacked", "stored", "library"])
def test_codes_give_the_same_rows_to_both_ends(way: str) -> None:
    ways: dict[str, RowOps[Any]] = {
        "unpacked": CpuRows(),
        "stored": CpuRows(unpack=False),
        "library": LibraryRows("float32"),
    }
    ops, matrix = ways[way], coded()
    rows = EmbeddingBlock(ops, Embedding(VOCABULARY, WIDTH), matrix)(np.arange(VOCABULARY))
    head = HeadBlock(ops, Head(VOCABULARY, tied=True), matrix)
    wanted = ops.host(rows).astype(np.float64)
    assert np.abs(head.host(head(rows)) - wanted @ wanted.T).max() <= 1e-4
