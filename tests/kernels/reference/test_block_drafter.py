"""DFlash2's convolution and selector by plain loops."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.reference.block_conv import block_conv, dynamic_kernels
from tensorfold.kernels.reference.pair_selector import best_candidates, greedy_chain, pair_scores
from tests.kernels.reference.rows import normal

ROWS, BASE, DYNAMIC = normal(1, 5, 12), normal(2, 2, 12), normal(3, 5, 2, 3)


def test_each_row_takes_itself_and_the_row_before_it() -> None:
    made = block_conv(ROWS, BASE, DYNAMIC)
    for t in range(5):
        for c in range(12):
            expected = ROWS[t, c] * (BASE[0, c] + DYNAMIC[t, 0, c // 4])
            if t:
                expected += ROWS[t - 1, c] * (BASE[1, c] + DYNAMIC[t, 1, c // 4])
            assert abs(made[t, c] - expected) < 1e-12


def test_kernels_before_and_after_the_op_are_projected_in_order_of_side_tap_and_group() -> None:
    projection = normal(4, 2 * 2 * 3, 12)
    made = dynamic_kernels(ROWS, projection, 2)
    assert made.shape == (5, 2, 2, 3)
    assert np.isclose(made[3, 1, 0, 2], projection[(1 * 2 + 0) * 3 + 2] @ ROWS[3])


def test_candidates_are_the_best_and_of_equal_ones_the_lower() -> None:
    assert best_candidates(np.array([1.0, 5.0, 1.0, 7.0, 5.0]), 4).tolist() == [3, 1, 4, 0]


def test_a_chain_follows_the_best_pair_behind_the_token_chosen_before() -> None:
    logits, hidden, projection = normal(5, 9, 8), normal(6, 9, 12), normal(7, 4, 12)
    before, after = normal(8, 8, 4), normal(9, 8, 4)
    chain = greedy_chain(2, logits, hidden, projection, (before, after), 3)
    previous = 2
    for row, chosen in enumerate(chain):
        best = sorted(range(8), key=lambda i: -logits[row, i])[:3]
        scores = {
            c: logits[row, c] + sum(before[previous, r] * (projection[r] @ hidden[row]) * after[c, r] for r in range(4))
            for c in best
        }
        assert chosen == max(scores, key=lambda c: scores[c])
        previous = chosen
    assert pair_scores(hidden[0], projection, before[2], after[:3]).shape == (3,)
