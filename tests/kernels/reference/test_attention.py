"""Attention, windows and rotary embedding against MLX's own."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.kernels.reference.attention import attend, in_window, output_gated, split_output_gate
from tensorfold.kernels.reference.rope import rotate
from tests.kernels.reference.rows import Floats, normal


def single(values: Floats) -> mx.array:
    return mx.array(values.astype(np.float32))


@pytest.mark.parametrize("window", (0, 3))
def test_grouped_attention_is_that_of_mlx(window: int) -> None:
    queries, keys, values = normal(1, 7, 6, 8), normal(2, 7, 2, 8), normal(3, 7, 2, 8)
    reads = [in_window(range(row + 1), range(7), window) for row in range(7)]
    places = np.arange(7)
    mask = places[None] <= places[:, None]
    if window:
        mask &= places[None] > places[:, None] - window
    mine = attend(queries, keys, values, reads, 0.4)
    theirs = mx.fast.scaled_dot_product_attention(
        *(single(x).transpose(1, 0, 2)[None] for x in (queries, keys, values)), scale=0.4, mask=mx.array(mask)
    )
    assert np.abs(mine - np.array(theirs)[0].transpose(1, 0, 2)).max() < 1e-5


def test_a_window_of_three_reads_the_row_itself_and_two_before_it_along_its_own_branch() -> None:
    # Rows 4 and 5 are two branches behind row 3, at the same position.
    positions = [0, 1, 2, 3, 4, 4]
    assert in_window([0, 1, 2, 3, 5], positions, 3) == [2, 3, 5]
    assert in_window([0, 1, 2, 3, 4], positions, 0) == [0, 1, 2, 3, 4]


def test_values_may_be_wider_than_keys() -> None:
    assert attend(normal(1, 2, 4, 8), normal(2, 3, 2, 8), normal(3, 3, 2, 5), [[0], [0, 2]], 1.0).shape == (2, 4, 5)


def test_a_soft_cap_is_applied_to_scaled_scores() -> None:
    query, keys, values = np.full((1, 1, 1), 4.0), np.array([[[1.0]], [[-1.0]]]), np.array([[[1.0]], [[0.0]]])
    bent = 2 * np.tanh(4.0 * 0.5 / 2)
    expected = np.exp(bent) / (np.exp(bent) + np.exp(-bent))
    assert np.allclose(attend(query, keys, values, [[0, 1]], 0.5, 2.0), expected)


def test_a_gate_stands_behind_the_query_in_each_head() -> None:
    query, gate = split_output_gate(np.arange(8.0).reshape(1, 2, 4))
    assert query.tolist() == [[[0, 1], [4, 5]]] and gate.tolist() == [[[2, 3], [6, 7]]]
    assert np.allclose(output_gated(np.array([2.0]), np.array([0.0])), 1.0)


@pytest.mark.parametrize("interleaved", (False, True))
@pytest.mark.parametrize("dims", (8, 4))
def test_rotation_is_that_of_mlx(interleaved: bool, dims: int) -> None:
    heads, theta = normal(5, 6, 3, 8), 50.0
    frequencies = theta ** (-np.arange(0, dims, 2) / dims)
    mine = rotate(heads, np.arange(6) + 9, frequencies, interleaved=interleaved)
    theirs = mx.fast.rope(
        single(heads).transpose(1, 0, 2)[None], dims, traditional=interleaved, base=theta, scale=1.0, offset=9
    )
    assert np.abs(mine - np.array(theirs)[0].transpose(1, 0, 2)).max() < 1e-5


def test_pairs_of_no_frequency_stand_still_and_pairs_reach_over_the_whole_head() -> None:
    heads = normal(6, 1, 1, 8)
    turned = rotate(heads, np.array([5]), np.array([0.3, 0.0, 0.0, 0.0]))
    assert np.flatnonzero(np.abs(turned - heads)[0, 0] > 1e-9).tolist() == [0, 4]
