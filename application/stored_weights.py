"""Weights as a checkpoint stores them, slot by slot, before any device has them.

Knows no file and no device: a backend gives the function that reads one tensor's stored values. What was read is seen,
cut and centred as the plan's sources say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.centring import stored_around_zero
from tensorfold.domain.families.fields import ConfigError
from tensorfold.domain.families.storage import Affine, TensorHeader
from tensorfold.domain.families.stored_modules import Module
from tensorfold.domain.families.tensors import Source, matches

Read = Callable[[TensorHeader], NDArray[Any]]
"""The stored values that a header states, in its shape; bf16 as its bits. Raises RefusedError."""
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


Stored = Codes | Values


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


class StoredWeights:
    """The slots of a bound plan; `on_progress` gets a line at every tenth of the bytes unless they are few.

    `headers` are the checkpoint's tensors, `read` reads one. `probes` is the tensor map's pattern of slots whose means
    tell whether norms are stored around zero. `backend` is who a refusal speaks of.
    """

    def __init__(
        self,
        bound: Mapping[str, Bound],
        headers: Mapping[str, TensorHeader],
        read: Read,
        on_progress: Callable[[str], None],
        probes: str = "",
        backend: str = "MLX",
    ) -> None:
        self._bound, self._headers, self._say, self._probes = bound, headers, on_progress, probes
        self._tensor, self._backend = read, backend
        self._total = max(1, sum(headers[n].nbytes for b in bound.values() for m in b.modules for n in m.tensors()))
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
            raise self._unread(found, path)
        rows, columns = found.slot.shape
        bias = self._floats(found.module.bias) if found.module.bias else None
        return Matrix(self._stored(found, found.module), (rows, columns), bias)

    def stack(self, path: str) -> Stack:
        """The matrices of a slot with one more axis in front, whether stored in one piece or one by one."""
        found = self._bound[path]
        if found.swapped:
            raise self._unread(found, path)
        entries, rows, columns = found.slot.shape
        parts = (self._stored(found, module) for module in found.modules)
        # A lone entry of several that could stand alone comes without the axis in front.
        stored = _stacked(parts, entries) if found.each else next(parts)
        biases = [self._floats(module.bias) for module in found.modules if module.bias]
        bias = np.stack(biases).reshape(entries, rows) if biases else None
        return Stack(stored, (entries, rows, columns), bias)

    def entries(self, path: str) -> Iterator[Matrix]:
        """The matrices of a stack in turn, each read when it is asked for, so that no two need be held."""
        found = self._bound[path]
        if found.swapped:
            raise self._unread(found, path)
        count, *shape = found.slot.shape
        apart = found.each or (not found.source.view and (found.source.cut is None or found.source.axis % 3 != 0))
        whole = None if apart else self.stack(path)
        for entry in range(count):
            if whole is not None:
                stored, bias = entry_of(whole.stored, entry), None if whole.bias is None else whole.bias[entry]
            elif found.each:
                module = found.modules[entry]
                stored, bias = self._stored(found, module), self._floats(module.bias) if module.bias else None
            else:
                stored, bias = self._stored(found, found.module, entry), self._bias_of(found.module, entry)
            yield Matrix(stored, (shape[0], shape[1]), bias)

    def heads(self, path: str) -> tuple[Stack, bool]:
        """The matrices of a slot, one for each head, as stored; True when the file holds them transposed."""
        found = self._bound[path]
        entries, rows, columns = found.slot.shape
        shape = (entries, columns, rows) if found.swapped else (entries, rows, columns)
        return Stack(self._stored(found, found.module), shape), found.swapped

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

    def _stored(self, found: Bound, module: Module, entry: int | None = None) -> Codes | Values:
        """One module's values or codes, or those of one entry of its first axis, seen and cut as its source says."""
        source, storage = found.source, found.storage
        if entry is not None and source.cut is not None:
            source = replace(source, axis=source.axis % 3 - 1)
        raw = _cut(self._raw(module.weight, entry), source)
        if not isinstance(storage, Affine):
            return Values(raw, storage.dtype)
        scales, biases = (_cut(self._floats(name, entry), source) for name in (module.scales, module.biases))
        return Codes(raw, scales, biases, storage.bits, storage.group, storage.dtype)

    def _bias_of(self, module: Module, entry: int) -> NDArray[np.float32] | None:
        return self._floats(module.bias, entry) if module.bias else None

    def _floats(self, name: str, entry: int | None = None) -> NDArray[np.float32]:
        return as_float32(Values(self._raw(name, entry), self._headers[name].dtype))

    def _raw(self, name: str, entry: int | None = None) -> NDArray[Any]:
        header = self._headers[name]
        if entry is None:
            return self._part(header)
        size = header.nbytes // header.shape[0]
        begin = header.begin + entry * size
        return self._part(replace(header, shape=header.shape[1:], begin=begin, end=begin + size))

    def _part(self, header: TensorHeader) -> NDArray[Any]:
        values = self._tensor(header)
        self._read += header.nbytes
        tenth = self._read * _STEPS // max(1, self._total)
        if tenth > self._said and self._total > _SMALL:
            self._said = tenth
            self._say(f"reading weights: {self._read / 1e6:,.0f} of {self._total / 1e6:,.0f} MB")
        return values

    def _unread(self, found: Bound, path: str) -> RefusedError:
        return RefusedError(
            f"{found.module.weight} is stored in a form the {self._backend} backend does not read yet ({path})."
        )


def _cut(values: NDArray[Any], source: Source) -> NDArray[Any]:
    """Stored values, or words, or scales, seen in `view` and cut along `axis`; the last axis is left as it is."""
    if source.view:
        values = values.reshape(*source.view[:-1], values.shape[-1])
    if source.cut is None:
        return values
    start, stop = source.cut
    axis = source.axis % values.ndim
    return np.ascontiguousarray(values[(slice(None),) * axis + (slice(start, stop),)])


def entry_of(stored: Codes | Values, entry: int) -> Codes | Values:
    """One entry of the first axis."""
    if isinstance(stored, Values):
        return replace(stored, raw=stored.raw[entry])
    words, scales, biases = (part[entry] for part in (stored.words, stored.scales, stored.biases))
    return replace(stored, words=words, scales=scales, biases=biases)


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


def stored_values(header: TensorHeader, data: NDArray[np.uint8]) -> NDArray[Any]:
    """The bytes of a tensor as its values, bf16 as its bits. Raises RefusedError when they are not all there."""
    if data.nbytes != header.nbytes:
        raise RefusedError(
            f"{header.file} no longer holds the {header.nbytes} bytes of {header.name} that its header states; "
            "wait until nothing writes to the checkpoint and start again."
        )
    shaped: NDArray[Any] = data.view(_RAW[header.dtype]).reshape(header.shape)
    return shaped


def as_float32(values: Values | Codes) -> NDArray[np.float32]:
    """Values in float32: dense ones exactly, affine ones as scale * code + bias, each step rounded."""
    if isinstance(values, Codes):
        codes = unpacked(values.words, values.bits).astype(np.float32)
        parts = codes.reshape(*values.scales.shape, values.group)
        made: NDArray[np.float32] = (parts * values.scales[..., None] + values.biases[..., None]).reshape(codes.shape)
        return made
    if values.dtype == "BF16":
        wide = values.raw.astype(np.uint32)
        wide <<= 16
        return wide.view(np.float32)
    return np.asarray(values.raw, np.float32)


def unpacked(words: NDArray[np.uint32], bits: int) -> NDArray[np.uint8]:
    """Codes [.., K] of rows of uint32 words [.., K * bits / 32]: one little-endian stream of bits a row."""
    units = words.reshape(*words.shape[:-1], -1, bits)  # 32 codes lie in `bits` whole words
    made = np.empty((*units.shape[:-1], 32), np.uint8)
    for code in range(32):
        word, shift = divmod(code * bits, 32)
        value = units[..., word] >> np.uint32(shift)
        if shift + bits > 32:
            value = value | units[..., word + 1] << np.uint32(32 - shift)
        made[..., code] = value & np.uint32((1 << bits) - 1)
    return made.reshape(*words.shape[:-1], -1)
