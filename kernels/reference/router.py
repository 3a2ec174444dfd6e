"""The choice of experts in float64, one row at a time, by every rule a plan knows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tensorfold.kernels.reference.activations import sigmoid, softmax
from tensorfold.kernels.reference.norm import rms_norm

Floats = NDArray[np.float64]


def router_input(
    row: Floats, norm_weight: Floats | None, eps: float, factor: float = 1.0, scale: Floats | None = None
) -> Floats:
    """A row [D] through the router's own RMS norm, times `factor`, times a learnt `scale` [D]."""
    normed = rms_norm(row, norm_weight, eps) * factor
    return normed if scale is None else normed * scale


def choose_experts(
    logits: Floats,
    count: int,
    scoring: str,
    *,
    normalize: bool = True,
    over_chosen: bool = False,
    correction: Floats | None = None,
    scale: float = 1.0,
    expert_scale: Floats | None = None,
) -> tuple[list[int], Floats]:
    """The `count` experts of a row's `logits` [E], best first, and their weights; of equal ones the lower id is better.

    Scores are the softmax or the sigmoids of the logits. `correction` [E] is added to them for choosing only. The
    chosen scores, or the softmax of the chosen logits when `over_chosen`, are divided by their sum when `normalize`,
    times `scale`, times the chosen entries of `expert_scale` [E].
    """
    scores = softmax(logits) if scoring == "softmax" else sigmoid(logits)
    ranked = scores if correction is None else scores + correction
    chosen = [int(expert) for expert in np.argsort(-ranked, kind="stable")[:count]]
    weights = softmax(logits[chosen]) if over_chosen else scores[chosen]
    if normalize:
        weights = weights / weights.sum()
    weights = weights * scale
    return chosen, weights if expert_scale is None else weights * expert_scale[chosen]
