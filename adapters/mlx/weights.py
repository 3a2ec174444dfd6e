"""A checkpoint's weights read tensor by tensor into host memory, not yet on any device, for the MLX backend.

Reads the byte ranges that validated headers state, and nothing else; a file that shrank meanwhile is refused. What the
bytes mean is `application/stored_weights.py`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.table_rows import TableRows
from tensorfold.application import stored_weights
from tensorfold.application.ports.checkpoints import CheckpointFacts
from tensorfold.application.stored_weights import Codes, Matrix, Stack, StoredWeights, Values, stored_values
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.storage import TensorHeader

__all__ = ["Codes", "Matrix", "Stack", "Values", "WeightReader", "as_float32", "decoded", "read_tensor"]


class WeightReader(StoredWeights):
    """Reads the slots of a bound plan from its checkpoint's folder; see `StoredWeights`."""

    def __init__(
        self,
        bound: Mapping[str, Bound],
        facts: CheckpointFacts,
        on_progress: Callable[[str], None],
        probes: str = "",
    ) -> None:
        def read(header: TensorHeader) -> NDArray[Any]:
            return read_tensor(facts.folder, header)

        super().__init__(bound, facts.tensors, read, on_progress, probes)
        self._folder = facts.folder

    def table(self, path: str) -> TableRows:
        """The rows of a slot, seen as [rows, width], which stay in their files. Raises RefusedError."""
        found = self._bound[path]
        # What is never read must not count as unread.
        self._total -= sum(self._headers[n].nbytes for module in found.modules for n in module.tensors())
        return TableRows(self._folder, self._headers, found.modules, found.storage, found.slot.shape[-1])


def read_tensor(folder: Path, header: TensorHeader) -> NDArray[Any]:
    """A tensor's stored values, bf16 as its bits. Raises RefusedError when the file no longer holds them."""
    try:
        data = np.fromfile(folder / header.file, np.uint8, header.nbytes, offset=header.begin)
    except OSError:
        data = np.empty(0, np.uint8)
    return stored_values(header, data)


def as_float32(values: Values | Codes) -> NDArray[np.float32]:
    """Values in float32: dense ones exactly, affine ones as scale * code + bias."""
    return decoded(values) if isinstance(values, Codes) else stored_weights.as_float32(values)


def decoded(codes: Codes) -> NDArray[np.float32]:
    """scale * code + bias in float32, which the library unpacks faster than numpy."""
    words, scales, biases = mx.array(codes.words), mx.array(codes.scales), mx.array(codes.biases)
    values = mx.dequantize(words, scales, biases, group_size=codes.group, bits=codes.bits)
    return np.array(values, copy=True)
