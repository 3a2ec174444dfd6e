"""The choice of blocks: pooling, scores, ties and the unfinished tail."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.reference.block_indexer import best_blocks, block_scores, chosen_keys, pool_gated, pool_mean
from tests.kernels.reference.rows import normal


def test_equal_gates_give_the_mean_and_offsets_weigh_places_channel_by_channel() -> None:
    keys = normal(1, 4, 3)
    assert np.allclose(pool_gated(keys, np.full((4, 3), 2.0), np.zeros((4, 3))), pool_mean(keys))
    offsets = np.full((4, 3), -1e3)
    offsets[[2, 0, 1], [0, 1, 2]] = 0.0
    assert np.allclose(pool_gated(keys, np.zeros((4, 3)), offsets), [keys[2, 0], keys[0, 1], keys[1, 2]])


def test_negative_products_count_nothing_and_heads_are_weighed_after_that() -> None:
    queries, pooled = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[2.0, -3.0], [1.0, 1.0], [-1.0, -1.0]])
    assert block_scores(queries, pooled, 0.5).tolist() == [1.0, 1.0, 0.0]
    assert block_scores(queries, pooled, 1.0, np.array([-1.0, 4.0])).tolist() == [-2.0, 3.0, 0.0]


def test_of_equal_blocks_the_lower_ids_are_kept_and_ids_come_in_order() -> None:
    assert best_blocks(np.array([1.0, 3.0, 1.0, 2.0, 1.0]), 4) == [0, 1, 2, 3]
    assert best_blocks(np.array([0.0, 0.0, 5.0]), 2) == [0, 2]
    assert best_blocks(np.array([0.0, 1.0]), 5) == [0, 1]


def test_the_unfinished_tail_is_always_read() -> None:
    assert chosen_keys([0, 2], 4, 14) == [0, 1, 2, 3, 8, 9, 10, 11, 12, 13]
    assert chosen_keys([1], 4, 8) == [4, 5, 6, 7]
    assert chosen_keys([], 4, 3) == [0, 1, 2]
