"""Residual streams: what is read, what is written, and which way streams are combined."""

from __future__ import annotations

import numpy as np

from tensorfold.kernels.reference.activations import sigmoid, silu
from tensorfold.kernels.reference.hyper_connections import (
    StreamWeights,
    doubly_stochastic,
    lowrank_input,
    lowrank_output,
    sinkhorn_input,
    sinkhorn_output,
    sinkhorn_weights,
    stream_mean,
)
from tests.kernels.reference.rows import normal

STREAMS = normal(1, 4, 6)


def test_a_closed_low_rank_gate_reads_half_the_mean() -> None:
    assert np.allclose(lowrank_input(STREAMS, normal(2, 3, 24), np.zeros((24, 3))), STREAMS.mean(axis=0) / 2)


def test_the_low_rank_gate_is_element_by_element() -> None:
    down, up = normal(2, 3, 24), normal(3, 24, 3)
    gates = [1 / (1 + np.exp(-(up[i] @ silu((down @ STREAMS.reshape(-1)) / 4)))) for i in range(24)]
    expected = sum(np.array(gates[6 * s : 6 * s + 6]) * STREAMS[s] for s in range(4)) / 4
    assert np.allclose(lowrank_input(STREAMS, down, up), expected)


def test_an_output_is_added_to_the_raw_streams_by_weights_of_the_normed_ones() -> None:
    normed, inject, made = normal(4, 4, 6), normal(5, 4, 24), normal(6, 6)
    after = lowrank_output(STREAMS, normed, inject, made)
    for stream in range(4):
        weight = 2 * sigmoid(np.array(inject[stream] @ normed.reshape(-1) / 4))
        assert np.allclose(after[stream], STREAMS[stream] + weight * made)
    assert np.allclose(lowrank_output(STREAMS, normed, 0 * inject, made), STREAMS + made)


def test_sinkhorn_ends_with_columns_and_makes_rows_nearly_even() -> None:
    made = doubly_stochastic(np.exp(normal(7, 4, 4)), 20, 1e-6)
    assert np.abs(made.sum(axis=0) - 1).max() < 1e-5 and np.abs(made.sum(axis=1) - 1).max() < 1e-4
    once = doubly_stochastic(np.exp(normal(7, 4, 4)), 1, 0.0)
    assert np.abs(once.sum(axis=0) - 1).max() < 1e-12 and np.abs(once.sum(axis=1) - 1).max() > 1e-2


def test_a_sites_weights_are_cut_into_reading_writing_and_combining() -> None:
    projection, base, scale = np.zeros((24, 24)), np.zeros(24), np.ones(3)
    base[:4], base[4:8] = 1.0, -1.0
    base[8 + 1] = 50.0  # stream 0's share in stream 1, before it is made doubly stochastic
    weights = sinkhorn_weights(STREAMS, projection, base, scale, 1e-5, 20, 1e-3)
    assert np.allclose(weights.into, sigmoid(np.ones(4)) + 1e-3)
    assert np.allclose(weights.out_of, 2 * sigmoid(-np.ones(4)))
    assert weights.combine[0, 1] > 0.9 > weights.combine[1, 0]


def test_a_combination_starts_as_a_softmax_of_each_row_with_eps_added() -> None:
    base = np.concatenate([np.zeros(8), normal(9, 16)])
    weights = sinkhorn_weights(STREAMS, np.zeros((24, 24)), base, np.ones(3), 1e-5, 1, 0.1)
    rows = np.exp(base[8:].reshape(4, 4))
    started = rows / rows.sum(axis=1, keepdims=True) + 0.1
    assert np.allclose(weights.combine, started / (started.sum(axis=0) + 0.1))


def test_each_kind_of_weight_has_a_scale_of_its_own_and_reads_the_normed_streams() -> None:
    projection, scale = normal(8, 24, 24), np.array([0.5, 2.0, 0.0])
    weights = sinkhorn_weights(STREAMS, projection, np.zeros(24), scale, 0.1, 20, 0.0)
    flat = STREAMS.reshape(-1)
    values = projection @ (flat / np.sqrt(np.mean(flat**2) + 0.1))
    assert np.allclose(weights.into, sigmoid(0.5 * values[:4]))
    assert np.allclose(weights.out_of, 2 * sigmoid(2.0 * values[4:8]))
    assert np.allclose(weights.combine, 0.25)


def test_a_combination_takes_stream_k_into_stream_i() -> None:
    combine = np.zeros((4, 4))
    combine[0, 1] = 1.0
    weights = StreamWeights(np.array([0.0, 0.0, 2.0, 0.0]), np.array([0.0, 0.0, 0.0, 3.0]), combine)
    after = sinkhorn_output(STREAMS, weights, np.ones(6))
    assert np.allclose(after, [np.zeros(6), STREAMS[0], np.zeros(6), np.full(6, 3.0)])
    assert np.allclose(sinkhorn_input(STREAMS, weights), 2 * STREAMS[2])
    assert np.allclose(stream_mean(STREAMS), STREAMS.mean(axis=0))
