"""Rows through the matrices they name: near the exact products, and the same bits alone and in any company."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.kernels.cpu.grouped import GroupedProduct
from tensorfold.kernels.cpu.workers import Workers

Rows = NDArray[np.float32]
EXPERTS, CHOSEN = 6, 3


def noise(seed: int, *shape: int) -> Rows:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def choices(seed: int, rows: int) -> NDArray[np.int64]:
    order = np.argsort(np.random.default_rng(seed).random((rows, EXPERTS)), axis=1)
    return order[:, :CHOSEN]


@pytest.mark.parametrize("shape", [(32, 64), (29, 33), (1, 40), (192, 700)])
@pytest.mark.parametrize("each", [1, CHOSEN])
@pytest.mark.slow
def test_a_row_is_the_same_alone_and_in_company(shape: tuple[int, int], each: int) -> None:
    weights, rows, ids = noise(1, EXPERTS, *shape), noise(2, 40, each, shape[1]), choices(3, 40)
    product = GroupedProduct(weights, Workers(1))
    alone = np.concatenate([product(rows[i : i + 1], ids[i : i + 1]) for i in range(40)])
    wide = np.broadcast_to(rows, (40, CHOSEN, shape[1])).astype(np.float64)
    exact = np.einsum("rknd,rkd->rkn", weights[ids].astype(np.float64), wide)
    assert np.abs(alone - exact).max() <= 1e-5 * np.abs(exact).max() * np.sqrt(shape[1])
    for count in (*range(1, 18), 40):
        assert np.array_equal(product(rows[:count], ids[:count]), alone[:count])
    turned = np.random.default_rng(4).permutation(40)
    assert np.array_equal(product(rows[turned], ids[turned]), alone[turned])


def test_a_row_does_not_see_what_shares_its_matrix() -> None:
    weights, rows = noise(5, EXPERTS, 32, 64), noise(6, 16, 1, 64)
    ids = np.zeros((16, CHOSEN), np.int64)
    product = GroupedProduct(weights, Workers(1))
    made = product(rows, ids)
    rows[1::2] = np.nan
    assert np.array_equal(product(rows, ids)[::2], made[::2])
    assert np.array_equal(made[:, 0], made[:, 1])


def test_matrices_are_seen_and_not_copied() -> None:
    weights, rows, ids = noise(7, EXPERTS, 128, 64), noise(8, 4, 1, 64), choices(9, 4)
    product = GroupedProduct(weights, Workers(1))
    before = product(rows, ids)
    weights *= 2
    assert np.array_equal(product(rows, ids), 2 * before)
