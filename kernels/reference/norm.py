"""Norms in float64: RMS norm, whole or in groups, LayerNorm, and the unit length of delta rule queries and keys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rms_norm(rows: Floats, weight: Floats | None, eps: float, groups: int = 1) -> Floats:
    """rows [..., K] divided by the root of their mean square plus `eps`, times `weight` [K].

    With `groups`, each of as many equal parts of K is divided by its own root.
    """
    parts = rows.reshape(*rows.shape[:-1], groups, -1)
    normed: Floats = parts / np.sqrt(np.mean(parts * parts, axis=-1, keepdims=True) + eps)
    normed = normed.reshape(rows.shape)
    return normed if weight is None else normed * weight


def layer_norm(rows: Floats, weight: Floats, bias: Floats, eps: float) -> Floats:
    """rows [..., K] less their mean, divided by the root of their variance plus `eps`, times `weight`, plus `bias`."""
    centred = rows - rows.mean(axis=-1, keepdims=True)
    normed: Floats = centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps)
    return normed * weight + bias


def unit_length(rows: Floats, eps: float) -> Floats:
    """rows [..., K] divided by the root of their sum of squares plus `eps`."""
    result: Floats = rows / np.sqrt(np.sum(rows * rows, axis=-1, keepdims=True) + eps)
    return result
