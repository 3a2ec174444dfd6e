"""A checkpoint's weights read tensor by tensor into host memory, for the CUDA backend.

Reads the byte ranges that validated headers state, and nothing else; a file that shrank meanwhile is refused. What the
bytes mean is `application/stored_weights.py`'s. Knows no device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.checkpoints import CheckpointFacts
from tensorfold.application.stored_weights import StoredWeights, stored_values
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.storage import TensorHeader


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

        super().__init__(bound, facts.tensors, read, on_progress, probes, backend="CUDA")


def read_tensor(folder: Path, header: TensorHeader) -> NDArray[Any]:
    """A tensor's stored values, bf16 as its bits. Raises RefusedError when the file no longer holds them."""
    try:
        data = np.fromfile(folder / header.file, np.uint8, header.nbytes, offset=header.begin)
    except OSError:
        data = np.empty(0, np.uint8)
    return stored_values(header, data)
