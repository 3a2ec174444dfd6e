"""Attention over cached latents in float64, in its two equal forms, one query at a time.

Source: multi-head latent attention of the DeepSeek-V2 report. The expanded form says what is meant; the absorbed form
is what decoding computes. They agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import softmax

Floats = NDArray[np.float64]


def attend_expanded(
    query: Floats,
    latents: Floats,
    reads: Sequence[int],
    key_up: Floats,
    value_up: Floats,
    scale: float,
    turned: tuple[Floats, Floats] | None = None,
) -> Floats:
    """Result [H, V] of one query [H, K]: every read latent [C] becomes a key and a value for each head.

    `latents` [T, C], `key_up` [H, K, C], `value_up` [H, V, C]. `turned` are the rotated parts, of the query [H, P] and
    of every token [T, P], whose product is added to the scores.
    """
    out = np.empty((len(query), value_up.shape[1]), np.float64)
    for head in range(len(query)):
        keys = latents[list(reads)] @ key_up[head].T
        values = latents[list(reads)] @ value_up[head].T
        scores = keys @ query[head]
        if turned is not None:
            scores = scores + turned[1][list(reads)] @ turned[0][head]
        out[head] = softmax(scores * scale) @ values
    return out


def attend_absorbed(
    query: Floats,
    latents: Floats,
    reads: Sequence[int],
    key_up: Floats,
    value_up: Floats,
    scale: float,
    turned: tuple[Floats, Floats] | None = None,
) -> Floats:
    """The same: the query is taken into the latent's space, and the mixed latent out of it."""
    out = np.empty((len(query), value_up.shape[1]), np.float64)
    seen = latents[list(reads)]
    for head in range(len(query)):
        scores = seen @ (query[head] @ key_up[head])
        if turned is not None:
            scores = scores + turned[1][list(reads)] @ turned[0][head]
        out[head] = value_up[head] @ (softmax(scores * scale) @ seen)
    return out
