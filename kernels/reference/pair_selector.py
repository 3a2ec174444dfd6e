"""DFlash2's selector in float64: scores of pairs of neighbouring candidates, and the chain they choose."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]


def best_candidates(logits: Floats, count: int) -> Ids:
    """Ids of the `count` largest logits, best first; of equal ones the lower id."""
    order: Ids = np.argsort(-logits, kind="stable")[:count]
    return order


def pair_scores(hidden: Floats, projection: Floats, predecessor: Floats, successors: Floats) -> Floats:
    """Scores [C] of the successors' codes [C, rank] after a token with code `predecessor` [rank] at a row `hidden` [D].

    sum over the rank of predecessor * projection(hidden) * successor.
    """
    result: Floats = successors @ (predecessor * (projection @ hidden))
    return result


def greedy_chain(
    anchor: int, logits: Floats, hidden: Floats, projection: Floats, codes: tuple[Floats, Floats], count: int
) -> list[int]:
    """The drafts behind `anchor`: at each row the candidate with the best logit plus pair score, from the one before.

    `logits` [R, V], `hidden` [R, D]; `codes` are the predecessors' and the successors' [V, rank].
    """
    chain: list[int] = []
    previous = anchor
    for row in range(len(logits)):
        candidates = best_candidates(logits[row], count)
        pairs = pair_scores(hidden[row], projection, codes[0][previous], codes[1][candidates])
        previous = int(candidates[np.argmax(logits[row, candidates] + pairs)])
        chain.append(previous)
    return chain
