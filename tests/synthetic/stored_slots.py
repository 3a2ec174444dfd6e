"""From a plan's slots to a checkpoint's tensors, in the layout of one publication: the inverse of binding.

Tensors are made one at a time when their bytes are asked for, so that checkpoints larger than memory can be written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tensorfold.domain.families.storage import Layout
from tensorfold.domain.families.tensors import Slot, Source, TensorMap, Weight
from tensorfold.kernels.reference.affine import quantize
from tests.synthetic.publications import Publication, Quantized
from tests.synthetic.safetensors_file import Stored, as_stored
from tests.synthetic.slot_values import SlotValues, generator

__all__ = ["LARGE", "Pending", "Quantized", "SlotSource", "stored_slots"]
_ITEM = {"F32": 4, "F16": 2, "BF16": 2, "U32": 4, "I64": 8}
LARGE = 1 << 18
"""Values above which a quantized module's codes are drawn as they are."""


class SlotSource(Protocol):
    """Where logical values come from: drawn, or read from another checkpoint."""

    def values(self, path: str, weight: Weight) -> NDArray[Any]:
        """A slot's values."""
        ...

    def bias(self, path: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
        """The ordinary bias beside a slot's module."""
        ...


@dataclass(frozen=True, slots=True)
class Pending:
    """A tensor that is made when asked: its name, dtype and shape are known before."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    make: Callable[[], Stored]

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return math.prod(self.shape) * _ITEM[self.dtype]


@dataclass(frozen=True, slots=True)
class _Piece:
    """A slot, or one entry of its first axis, inside a stored tensor."""

    path: str
    slot: Slot
    source: Source
    entry: int | None


def stored_slots(
    table: TensorMap,
    values: SlotSource,
    publication: Publication,
    dtype: str = "BF16",
    quantized: Quantized | None = None,
) -> Iterator[Pending]:
    """Every tensor of a checkpoint, in the order of the slots; optional slots are there."""
    for module, pieces in _modules(table, publication).items():
        yield from _Module(module, tuple(pieces), values, publication, dtype, table, quantized).tensors()


def _modules(table: TensorMap, publication: Publication) -> dict[str, list[_Piece]]:
    found: dict[str, list[_Piece]] = {}
    for path, slot in table.slots.items():
        source = publication.source(slot)
        name = publication.prefix(source.name) + source.name
        if "{e}" not in name:
            found.setdefault(name, []).append(_Piece(path, slot, source, None))
            continue
        for entry in range(slot.shape[0]):
            found.setdefault(name.replace("{e}", str(entry)), []).append(_Piece(path, slot, source, entry))
    return found


@dataclass(frozen=True, slots=True)
class _Module:
    """One stored module: a tensor, or codes with scales and biases, and the ordinary bias of its outputs."""

    name: str
    pieces: tuple[_Piece, ...]
    values: SlotSource
    publication: Publication
    dtype: str
    table: TensorMap
    quantized: Quantized | None

    def tensors(self) -> Iterator[Pending]:
        piece = self.pieces[0]
        source, weight = piece.source, piece.slot.weight
        shape = _stored_shape(piece)
        if weight.rule == "conv" and self.publication.converted:
            shape = (shape[0], shape[2], shape[1])
        name = f"{self.name}.weight" if source.module else self.name
        layout = self._layout(shape)
        if layout is not None:
            yield from self._affine(shape, layout)
        elif weight.rule == "integer":
            yield Pending(name, "I64", shape, lambda: Stored("I64", self._assembled()))
        else:
            dtype = "F32" if weight.rule == "float32" else self.dtype
            yield Pending(name, dtype, shape, lambda: as_stored(self._assembled(), dtype))
        if weight.bias:
            outputs = weight.bias_shape(shape)
            bias = self.values.bias
            yield Pending(
                f"{self.name}.bias", self.dtype, outputs, lambda: as_stored(bias(piece.path, outputs), self.dtype)
            )

    def _layout(self, shape: tuple[int, ...]) -> Layout | None:
        piece = self.pieces[0]
        if self.quantized is None or not piece.source.module or piece.slot.weight.rule not in ("matrix", "router"):
            return None
        layout = self.quantized.layout(self.name)
        if piece.slot.weight.rule == "router" and layout is not None:
            bits = self.table.router_bits
            layout = layout if layout.bits in bits else Layout(bits[-1], layout.group)
        return layout if layout is not None and shape[-1] % layout.group == 0 else None

    def _affine(self, shape: tuple[int, ...], layout: Layout) -> Iterator[Pending]:
        rows, inputs = shape[:-1], shape[-1]

        @lru_cache(maxsize=1)
        def codes() -> tuple[Stored, Stored, Stored]:
            if math.prod(shape) > LARGE and isinstance(self.values, SlotValues):
                return self._random_codes(self.values, shape, layout)
            words, scales, biases = quantize(self._assembled(), layout.bits, layout.group)
            return Stored("U32", words), as_stored(scales, self.dtype), as_stored(biases, self.dtype)

        groups = (*rows, inputs // layout.group)
        yield Pending(f"{self.name}.weight", "U32", (*rows, inputs * layout.bits // 32), lambda: codes()[0])
        yield Pending(f"{self.name}.scales", self.dtype, groups, lambda: codes()[1])
        yield Pending(f"{self.name}.biases", self.dtype, groups, lambda: codes()[2])

    def _random_codes(
        self, values: SlotValues, shape: tuple[int, ...], layout: Layout
    ) -> tuple[Stored, Stored, Stored]:
        """Codes drawn as they are: as good as quantized values of the same spread, and made at the disk's speed."""
        piece = self.pieces[0]
        draw = generator(values.seed, self.name)
        words = draw.integers(0, 1 << 32, (*shape[:-1], shape[-1] * layout.bits // 32), np.uint32)
        top = 2**layout.bits - 1
        step = np.float32(2 * values.spread(piece.path, piece.slot.weight) / top)
        groups = (*shape[:-1], shape[-1] // layout.group)
        scales = step * (np.float32(0.9) + np.float32(0.2) * draw.random(groups, np.float32))
        return Stored("U32", words), as_stored(scales, self.dtype), as_stored(-scales * top / 2, self.dtype)

    def _assembled(self) -> NDArray[Any]:
        """The stored values: every piece at its place in the tensor, in the axis order of the file."""
        first = self.pieces[0]
        if first.source.cut is None:
            whole = self._piece(first)
        else:
            whole = np.zeros(first.source.view or first.source.stored)
            for piece in self.pieces:
                assert piece.source.cut is not None
                at = [slice(None)] * whole.ndim
                at[piece.source.axis] = slice(*piece.source.cut)
                whole[tuple(at)] = self._piece(piece)
        if first.source.stored:
            whole = whole.reshape(first.source.stored)
        swapped = first.slot.weight.rule == "conv" and self.publication.converted
        return np.ascontiguousarray(np.swapaxes(whole, -1, -2)) if swapped or first.source.transposed else whole

    def _piece(self, piece: _Piece) -> NDArray[Any]:
        made = self.values.values(piece.path, piece.slot.weight)
        if piece.entry is not None:
            made = made[piece.entry]
        if piece.source.takes_log:
            made = np.exp(made)
        return made - 1.0 if self.publication.adds_one(piece.slot) else made


def _stored_shape(piece: _Piece) -> tuple[int, ...]:
    source, shape = piece.source, piece.slot.shape
    if source.stored:
        return source.stored
    shape = shape[1:] if piece.entry is not None else shape
    return (*shape[:-2], shape[-1], shape[-2]) if source.transposed else shape
