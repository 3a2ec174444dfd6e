"""The part of the target's head that drafts are taken from: its rows of some ids, and draws among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.blocks.head import HeadBlock
from tensorfold.adapters.mlx.decoder import Decoder
from tensorfold.adapters.mlx.weights import Codes, Matrix, Values, WeightReader
from tensorfold.domain.sampling import Sampling, draw_rows

A = TypeVar("A")


class DraftRows(Generic[A]):
    """Logits over the ids in `spans` (half-open; none: all), from the target's head or its embedding where tied."""

    def __init__(self, decoder: Decoder[A], weights: WeightReader, spans: Sequence[tuple[int, int]]) -> None:
        plan = decoder.plan.head
        self.vocabulary = plan.vocabulary
        inside = [(max(0, start), min(stop, plan.vocabulary)) for start, stop in spans]
        if inside:
            self.ids = np.concatenate([np.arange(*span, dtype=np.int64) for span in inside])
            matrix = weights.matrix("embedding" if plan.tied else "head")
            self._head = HeadBlock(decoder.ops, plan, _some(matrix, self.ids))
        else:
            self.ids, self._head = np.arange(plan.vocabulary), decoder.head

    def logits(self, rows: A) -> NDArray[np.float32]:
        """Logits [R, ids] on the host."""
        return self._head.host(self._head(rows))

    def draw(self, logits: NDArray[np.float32], position: int, sampling: Sampling) -> tuple[int, float]:
        """The draw of one row's logits [ids] with the noise of `position`, and its probability among the ids."""
        full = np.full((1, self.vocabulary), -np.inf, np.float32)
        full[0, self.ids] = logits
        token = draw_rows(full, [position], [sampling])[0]
        scaled = full[0].astype(np.float64) / (sampling.temperature or 1.0)
        weights = np.exp(scaled - scaled.max())
        return int(token), float(weights[token] / weights.sum())


def _some(matrix: Matrix, ids: NDArray[np.int64]) -> Matrix:
    """Some outputs of a matrix."""
    stored, bias = matrix.stored, None if matrix.bias is None else matrix.bias[ids]
    part: Codes | Values
    if isinstance(stored, Codes):
        part = replace(stored, words=stored.words[ids], scales=stored.scales[ids], biases=stored.biases[ids])
    else:
        part = replace(stored, raw=stored.raw[ids])
    return Matrix(part, (len(ids), matrix.shape[1]), bias)
