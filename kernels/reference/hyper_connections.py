"""Hyper-connections in float64: several residual streams, read and written around each sublayer, one token at a time.

Source: manifold-constrained hyper-connections (DeepSeek, mHC) for the Sinkhorn form; the low-rank form is that of
transformers 5.23.0's qwen4_exp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import sigmoid, silu, softmax
from tensorfold.kernels.reference.norm import rms_norm

Floats = NDArray[np.float64]


def lowrank_input(normed: Floats, down: Floats, up: Floats) -> Floats:
    """A sublayer's input [D]: the mean of the normed streams [S, D], each value through a sigmoid gate of low rank.

    `down` [rank, S * D], `up` [S * D, rank]; what `down` gives is divided by the number of streams.
    """
    flat = normed.reshape(-1)
    gate = sigmoid(up @ silu(down @ flat / len(normed)))
    result: Floats = (gate * flat).reshape(normed.shape).mean(axis=0)
    return result


def lowrank_output(streams: Floats, normed: Floats, inject: Floats, made: Floats) -> Floats:
    """The streams [S, D] with what a sublayer made [D] added, times 2 sigmoid(inject(normed) / S) for each stream."""
    weights = 2.0 * sigmoid(inject @ normed.reshape(-1) / len(streams))
    return streams + np.outer(weights, made)


@dataclass(frozen=True, slots=True)
class StreamWeights:
    """Weights of a site: `into` [S] reads, `out_of` [S] writes, `combine` [S, S] mixes stream k into stream i."""

    into: Floats
    out_of: Floats
    combine: Floats


def sinkhorn_weights(
    streams: Floats, projection: Floats, base: Floats, scale: Floats, norm_eps: float, iterations: int, eps: float
) -> StreamWeights:
    """The weights that all streams [S, D] together give a site.

    `projection` [S * (S + 2), S * D] and `base` give S reading, S writing and S * S combining values, each kind times
    its entry of `scale` [3]. `eps` is added to the reading weights, the combination and every sum it is divided by.
    """
    count = len(streams)
    values = projection @ rms_norm(streams.reshape(-1), None, norm_eps)
    into, out_of, combine = (
        values[at] * scale[kind] + base[at]
        for kind, at in enumerate((slice(count), slice(count, 2 * count), slice(2 * count, None)))
    )
    mixed = softmax(combine.reshape(count, count)) + eps
    return StreamWeights(sigmoid(into) + eps, 2.0 * sigmoid(out_of), doubly_stochastic(mixed, iterations, eps))


def doubly_stochastic(matrix: Floats, iterations: int, eps: float) -> Floats:
    """Sinkhorn's iteration: columns divided by their sums, then rows and columns in turn `iterations` - 1 times."""
    made: Floats = matrix / (matrix.sum(axis=0, keepdims=True) + eps)
    for _ in range(iterations - 1):
        made = made / (made.sum(axis=1, keepdims=True) + eps)
        made = made / (made.sum(axis=0, keepdims=True) + eps)
    return made


def sinkhorn_input(streams: Floats, weights: StreamWeights) -> Floats:
    """A sublayer's input [D]: the streams [S, D], weighed and added."""
    result: Floats = weights.into @ streams
    return result


def sinkhorn_output(streams: Floats, weights: StreamWeights, made: Floats) -> Floats:
    """The streams after a sublayer: stream i is out_of[i] * made + the sum over k of combine[k, i] * stream k."""
    result: Floats = np.outer(weights.out_of, made) + weights.combine.T @ streams
    return result


def stream_mean(streams: Floats) -> Floats:
    """The mean [D] of the streams [S, D]."""
    result: Floats = streams.mean(axis=0)
    return result
