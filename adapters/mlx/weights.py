"""Weights as a checkpoint stores them, read tensor by tensor into host memory, not yet on any device.

Reads the byte ranges that validated headers state, and nothing else; a file that shrank meanwhile is refused. Knows no
plan: a block asks for the slots it needs by path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.mlx.table_rows import TableRows
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.centring import stored_around_zero
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.storage import Affine, Dense, TensorHeader
from tensorfold.domain.families.stored_modules import Module
from tensorfold.domain.families.tensors import Source, matches

_RAW: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "U32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
}
_STEPS = 10
_SMALL = 32 << 20


@dataclass(frozen=True, slots=True)
class Codes:
    """Affine codes of [.., N, K]: uint32 words [.., N, K * bits / 32], scales and biases [.., N, K / group]."""

    words: NDArray[np.uint32]
    scales: NDArray[np.float32]
    biases: NDArray[np.float32]
    bits: int
    group: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Values:
    """Dense values [.., N, K] as stored; those of `BF16` are the bits, as uint16."""

    raw: NDArray[Any]
    dtype: str


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """One stored projection or embedding [outputs, inputs], with the ordinary bias of its outputs if it has one."""

    stored: Codes | Values
    shape: tuple[int, int]
    bias: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """Matrices of one shape [entries, outputs, inputs], with biases [entries, outputs] if they have them."""

    stored: Codes | Values
    shape: tuple[int, int, int]
    bias: NDArray[np.float32] | None = None


class WeightReader:
    """Reads the slots of a bound plan; `on_progress` gets a line at every tenth of the bytes unless they are few.

    `probes` is the tensor map's pattern of slots whose means tell whether norms are stored around zero.
    """

    def __init__(
        self,
        bound: Mapping[str, Bound],
        facts: CheckpointFacts,
        on_progress: Callable[[str], None],
        probes: str = "",
    ) -> None:
        self._bound, self._facts, self._say, self._probes = bound, facts, on_progress, probes
        self._total = max(
            1, sum(facts.tensors[n].nbytes for b in bound.values() for m in b.modules for n in m.tensors())
        )
        self._read = 0
        self._said = 0
        self._around_zero: bool | None = None

    def has(self, path: str) -> bool:
        """Whether the checkpoint fills this slot."""
        return path in self._bound

    def has_below(self, root: str) -> bool:
        """Whether the checkpoint fills any slot whose path begins so."""
        return any(path.startswith(root) for path in self._bound)

    def matrix(self, path: str) -> Matrix:
        """The matrix of a slot. Raises RefusedError."""
        found = self._bound[path]
        if found.swapped or len(found.modules) > 1:
            raise RefusedError(f"{found.module.weight} is stored in a form the MLX backend does not read yet ({path}).")
        rows, columns = found.slot.shape
        bias = self._floats(found.module.bias) if found.module.bias else None
        return Matrix(self._stored(found, found.module), (rows, columns), bias)

    def stack(self, path: str) -> Stack:
        """The matrices of a slot with one more axis in front, whether stored in one piece or one by one."""
        found = self._bound[path]
        if found.swapped:
            raise RefusedError(f"{found.module.weight} is stored in a form the MLX backend does not read yet ({path}).")
        entries, rows, columns = found.slot.shape
        parts = (self._stored(found, module) for module in found.modules)
        # A lone entry of several that could stand alone comes without the axis in front.
        stored = _stacked(parts, entries) if found.each else next(parts)
        biases = [self._floats(module.bias) for module in found.modules if module.bias]
        bias = np.stack(biases).reshape(entries, rows) if biases else None
        return Stack(stored, (entries, rows, columns), bias)

    def heads(self, path: str) -> tuple[Stack, bool]:
        """The matrices of a slot, one for each head, as stored; True when the file holds them transposed."""
        found = self._bound[path]
        entries, rows, columns = found.slot.shape
        shape = (entries, columns, rows) if found.swapped else (entries, rows, columns)
        return Stack(self._stored(found, found.module), shape), found.swapped

    def table(self, path: str) -> TableRows:
        """The rows of a slot, seen as [rows, width], which stay in their files. Raises RefusedError."""
        found = self._bound[path]
        # What is never read must not count as unread.
        self._total -= sum(self._facts.tensors[n].nbytes for module in found.modules for n in module.tensors())
        return TableRows(self._facts.folder, self._facts.tensors, found.modules, found.storage, found.slot.shape[-1])

    def floats(self, path: str) -> NDArray[np.float32]:
        """Every value of a slot in float32, however it is stored. Raises RefusedError.

        A logarithm is taken where the file holds exponentials, and one added where it holds values around zero.
        """
        found = self._bound[path]
        parts = [as_float32(self._stored(found, module)) for module in found.modules]
        values = parts[0] if len(parts) == 1 else np.stack(parts)
        if found.swapped:
            values = np.ascontiguousarray(values.swapaxes(-1, -2))
        if found.source.takes_log:
            values = np.log(values)
        if self._adds_one(found):
            values = values + np.float32(1.0)
        return values.reshape(found.slot.shape)

    def integers(self, path: str) -> NDArray[np.int64]:
        """The values of an integer slot."""
        found = self._bound[path]
        return self._raw(found.module.weight).reshape(found.slot.shape)

    def bias(self, path: str) -> NDArray[np.float32] | None:
        """The ordinary bias beside a slot's module, if it has one."""
        module = self._bound[path].module
        return self._floats(module.bias) if module.bias else None

    def _adds_one(self, found: Bound) -> bool:
        if found.add_one is not None:
            return found.add_one
        if self._around_zero is None:
            self._around_zero = self._probed()
        return self._around_zero

    def _probed(self) -> bool:
        """Whether this checkpoint stores its norms around zero, from the means of those the family names."""
        means = [
            float(np.mean(self._floats(found.module.weight)))
            for path, found in self._bound.items()
            if found.add_one is None and matches(self._probes, path)
        ]
        try:
            return stored_around_zero(means)
        except ConfigError as error:
            raise RefusedError(error.message) from None

    def _stored(self, found: Bound, module: Module) -> Codes | Values:
        """One module's values or codes, seen and cut as its source says."""
        source, storage = found.source, found.storage
        raw = _cut(self._raw(module.weight), source)
        if not isinstance(storage, Affine):
            return Values(raw, storage.dtype)
        scales, biases = (_cut(self._floats(name), source) for name in (module.scales, module.biases))
        return Codes(raw, scales, biases, storage.bits, storage.group, storage.dtype)

    def _floats(self, name: str) -> NDArray[np.float32]:
        return as_float32(Values(self._raw(name), self._facts.tensors[name].dtype))

    def _raw(self, name: str) -> NDArray[Any]:
        header = self._facts.tensors[name]
        values = read_tensor(self._facts.folder, header)
        self._read += header.nbytes
        tenth = self._read * _STEPS // max(1, self._total)
        if tenth > self._said and self._total > _SMALL:
            self._said = tenth
            self._say(f"reading weights: {self._read / 1e6:,.0f} of {self._total / 1e6:,.0f} MB")
        return values


def _cut(values: NDArray[Any], source: Source) -> NDArray[Any]:
    """Stored values, or words, or scales, seen in `view` and cut along `axis`; the last axis is left as it is."""
    if source.view:
        values = values.reshape(*source.view[:-1], values.shape[-1])
    if source.cut is None:
        return values
    start, stop = source.cut
    axis = source.axis % values.ndim
    return np.ascontiguousarray(values[(slice(None),) * axis + (slice(start, stop),)])


def _stacked(parts: Iterator[Codes | Values], count: int) -> Codes | Values:
    """`count` parts as one, each let go when it is copied: a model's experts twice would not fit."""
    first = next(parts)
    names = ("raw",) if isinstance(first, Values) else ("words", "scales", "biases")
    made: dict[str, Any] = {
        name: np.empty((count, *getattr(first, name).shape), getattr(first, name).dtype) for name in names
    }
    for index, part in enumerate(chain((first,), parts)):
        for name, stack in made.items():
            stack[index] = getattr(part, name)
    return replace(first, **made)


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


def as_float32(values: Values | Codes) -> NDArray[np.float32]:
    """Values in float32: dense ones exactly, affine ones as scale * code + bias."""
    if isinstance(values, Codes):
        return decoded(values)
    if values.dtype == "BF16":
        wide = values.raw.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return np.asarray(values.raw, np.float32)


def decoded(codes: Codes) -> NDArray[np.float32]:
    """scale * code + bias in float32."""
    words, scales, biases = mx.array(codes.words), mx.array(codes.scales), mx.array(codes.biases)
    values = mx.dequantize(words, scales, biases, group_size=codes.group, bits=codes.bits)
    return np.array(values, copy=True)


def is_affine(bound: Mapping[str, Bound]) -> bool:
    """Whether any slot is stored in affine codes."""
    return any(isinstance(b.storage, Affine) for b in bound.values())


def widest_dense(bound: Mapping[str, Bound]) -> str:
    """The widest dtype among dense slots with two axes, as headers name it."""
    kinds = {b.storage.dtype for b in bound.values() if isinstance(b.storage, Dense) and len(b.slot.shape) > 1}
    return next((kind for kind in ("F32", "F16") if kind in kinds), "BF16")
