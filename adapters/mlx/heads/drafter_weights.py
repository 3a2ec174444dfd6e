"""Weights of a drafter, whose matrices may be narrowed as they are read: rounding costs drafts and no token."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mlx.core as mx
import numpy as np

from tensorfold.adapters.mlx.weights import Codes, Matrix, WeightReader, as_float32
from tensorfold.application.ports.checkpoints import CheckpointFacts
from tensorfold.domain.families.binding import Bound

_GROUP = 64
_FULL_BITS = 16


class DrafterWeights(WeightReader):
    """A `WeightReader` that quantizes dense matrices to `bits` in groups of 64; 0 and 16 leave them as they are."""

    def __init__(
        self, bound: Mapping[str, Bound], facts: CheckpointFacts, on_progress: Callable[[str], None], *, bits: int
    ) -> None:
        super().__init__(bound, facts, on_progress)
        self._bits = 0 if bits == _FULL_BITS else bits

    def matrix(self, path: str) -> Matrix:
        """The matrix of a slot, narrowed where its inputs are whole groups."""
        matrix = super().matrix(path)
        if not self._bits or isinstance(matrix.stored, Codes) or matrix.shape[1] % _GROUP:
            return matrix
        values = mx.array(as_float32(matrix.stored))
        parts = mx.quantize(values, group_size=_GROUP, bits=self._bits)
        words, scales, biases = (np.array(part) for part in parts)
        codes = Codes(words, scales, biases, self._bits, _GROUP, "F32")
        return Matrix(codes, matrix.shape, matrix.bias)
