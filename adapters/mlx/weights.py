"""Weights as a checkpoint stores them, read tensor by tensor into host memory, not yet on any device.

Reads the byte ranges that validated headers state, and nothing else; a file that shrank meanwhile is refused. Knows no
plan: a block asks for the slots it needs by path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.storage import Affine, Dense, TensorHeader
from tensorfold.domain.families.tensors import Source

_RAW: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
}
_STEPS = 10
_SMALL = 32 << 20


@dataclass(frozen=True, slots=True)
class Codes:
    """Affine codes of a matrix [N, K]: uint32 words [N, K * bits / 32], scales and biases [N, K / group]."""

    words: NDArray[np.uint32]
    scales: NDArray[np.float32]
    biases: NDArray[np.float32]
    bits: int
    group: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Values:
    """Dense values of a matrix [N, K] as stored; those of `BF16` are the bits, as uint16."""

    raw: NDArray[Any]
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """One stored projection or embedding [outputs, inputs], with the ordinary bias of its outputs if it has one."""

    stored: Codes | Values
    shape: tuple[int, int]
    bias: NDArray[np.float32] | None = None


class WeightReader:
    """Reads the slots of a bound plan; `on_progress` gets a line at every tenth of the bytes unless they are few."""

    def __init__(self, bound: Mapping[str, Bound], facts: CheckpointFacts, on_progress: Callable[[str], None]) -> None:
        self._bound, self._facts, self._say = bound, facts, on_progress
        self._total = max(
            1, sum(facts.tensors[n].nbytes for b in bound.values() for m in b.modules for n in m.tensors())
        )
        self._read = 0
        self._said = 0

    def has(self, path: str) -> bool:
        """Whether the checkpoint fills this slot."""
        return path in self._bound

    def matrix(self, path: str) -> Matrix:
        """The matrix of a slot. Raises RefusedError."""
        found = self._plain(path)
        rows, columns = found.slot.shape
        module = found.module
        bias = self._floats(module.bias) if module.bias else None
        if isinstance(found.storage, Affine):
            layout = found.storage
            words, scales, biases = self._raw(module.weight), self._floats(module.scales), self._floats(module.biases)
            return Matrix(Codes(words, scales, biases, layout.bits, layout.group, layout.dtype), (rows, columns), bias)
        return Matrix(Values(self._raw(module.weight), found.storage.dtype), (rows, columns), bias)

    def vector(self, path: str) -> NDArray[np.float32]:
        """The values of a slot in float32, one added where they are stored around zero. Raises RefusedError."""
        found = self._plain(path)
        values = self._floats(found.module.weight)
        return values + np.float32(1.0) if found.add_one else values

    def _plain(self, path: str) -> Bound:
        found = self._bound[path]
        name = found.source.name
        if len(found.modules) > 1 or found.swapped or found.add_one is None or found.source != Source(name):
            raise RefusedError(f"{found.module.weight} is stored in a form the MLX backend does not read yet ({path}).")
        return found

    def _floats(self, name: str) -> NDArray[np.float32]:
        return as_float32(Values(self._raw(name), self._facts.tensors[name].dtype))

    def _raw(self, name: str) -> NDArray[Any]:
        header = self._facts.tensors[name]
        values = read_tensor(self._facts.folder, header)
        self._read += header.nbytes
        tenth = self._read * _STEPS // self._total
        if tenth > self._said and self._total > _SMALL:
            self._said = tenth
            self._say(f"reading weights: {self._read / 1e6:,.0f} of {self._total / 1e6:,.0f} MB")
        return values


def read_tensor(folder: Path, header: TensorHeader) -> NDArray[Any]:
    """A tensor's stored values, bf16 as its bits. Raises RefusedError when the file no longer holds them."""
    kind = _RAW[header.dtype]
    try:
        with (folder / header.file).open("rb") as file:
            values = np.fromfile(file, kind, header.nbytes // kind.itemsize, offset=header.begin)
    except OSError:
        values = np.empty(0, kind)
    if values.nbytes != header.nbytes:
        raise RefusedError(
            f"{header.file} no longer holds the {header.nbytes} bytes of {header.name} that its header states; "
            "wait until nothing writes to the checkpoint and start again."
        )
    shaped: NDArray[Any] = values.reshape(header.shape)
    return shaped


def as_float32(values: Values) -> NDArray[np.float32]:
    """Dense values in float32, exactly."""
    if values.dtype == "BF16":
        wide = values.raw.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return np.asarray(values.raw, np.float32)


def is_affine(bound: Mapping[str, Bound]) -> bool:
    """Whether any slot is stored in affine codes."""
    return any(isinstance(b.storage, Affine) for b in bound.values())


def widest_dense(bound: Mapping[str, Bound]) -> str:
    """The widest dtype among dense slots with two axes, as headers name it."""
    kinds = {b.storage.dtype for b in bound.values() if isinstance(b.storage, Dense) and len(b.slot.shape) > 1}
    return next((kind for kind in ("F32", "F16") if kind in kinds), "BF16")
