"""Writes a safetensors file piece by piece: the header from the plan alone, then each tensor's rows as they are made.

Invariant: every tensor gets exactly the bytes its header states. Source: the safetensors format's documentation.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_DTYPES = {"U32": "<u4", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class PlannedTensor:
    """A tensor to write. `pieces` yields arrays that follow each other; BF16 comes as uint16 bit patterns."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[NDArray[Any]]]

    @property
    def nbytes(self) -> int:
        """Bytes of the whole tensor."""
        return math.prod(self.shape) * np.dtype(_DTYPES[self.dtype]).itemsize


def write_safetensors(path: Path, planned: Sequence[PlannedTensor]) -> None:
    """Write `planned` to a new file and flush it to the disk. Raises OSError; ValueError when pieces do not add up.

    Wide types come first, so that every tensor begins at a multiple of its item size.
    """
    ordered = sorted(planned, key=lambda tensor: (-np.dtype(_DTYPES[tensor.dtype]).itemsize, tensor.name))
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[tensor.name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in ordered:
            written = 0
            for piece in tensor.pieces():
                written += file.write(np.ascontiguousarray(piece, _DTYPES[tensor.dtype]).data)
            if written != tensor.nbytes:
                raise ValueError(f"{tensor.name} was planned with {tensor.nbytes} bytes and got {written}")
        file.flush()
        os.fsync(file.fileno())
