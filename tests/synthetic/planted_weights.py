"""Weights of any plan made as they are asked for, at the speed of a copy: for models whose checkpoints cannot be had.

The interface is that of `application/stored_weights.py`, so a backend loads them as it loads a file. Matrices are
affine codes drawn at random, with the spread that trained ones have; what is small is drawn as in `slot_values`.
Random codes come from one block that is read round and round: its length is prime, so no two rows are alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.application.stored_weights import Codes, Matrix, Stack, Values
from tensorfold.domain.families.plan_weights import drafter_weights, plan_weights
from tensorfold.domain.families.plans import DecoderPlan, DFlashDrafter
from tensorfold.domain.families.tensors import Weight
from tests.synthetic.slot_values import SlotValues, generator

_BLOCK = 16_777_213
"""Words of the block, a prime: a row of a matrix never begins twice at the same place of it."""
_AT_ONCE = 1 << 20
_EVEN = (0.9, 1.1)
"""Scales of groups lie between these times their matrix's."""


@cache
def _words() -> NDArray[np.uint32]:
    return generator(1, "words").integers(0, 1 << 32, _BLOCK, np.uint32)


@cache
def _factors() -> NDArray[np.float32]:
    low, high = _EVEN
    return (low + (high - low) * generator(1, "scales").random(_BLOCK // 16 - 4, np.float32)).astype(np.float32)


def prepare() -> None:
    """Make what all weights are read from, so that it is not counted as a model's own."""
    _words()
    _factors()


@dataclass(frozen=True, slots=True)
class PlantedWeights:
    """The slots of a plan, or of a drafter's checkpoint, as affine codes of `bits` in groups of `group`.

    A matrix whose inputs are no whole groups, and a router, is stored plain in bf16.
    """

    slots: Mapping[str, Weight]
    drawn: SlotValues
    bits: int = 4
    group: int = 64

    @staticmethod
    def of(plan: DecoderPlan | DFlashDrafter, seed: int = 1, bits: int = 4, group: int = 64) -> PlantedWeights:
        """Everything that a plan needs, its own draft head included."""
        slots = drafter_weights(plan) if isinstance(plan, DFlashDrafter) else plan_weights(plan)
        return PlantedWeights(slots, SlotValues.of(plan, seed), bits, group)

    def has(self, path: str) -> bool:
        """Whether the plan has this slot."""
        return path in self.slots

    def has_below(self, root: str) -> bool:
        """Whether the plan has any slot whose path begins so."""
        return any(path.startswith(root) for path in self.slots)

    def matrix(self, path: str) -> Matrix:
        """The matrix of a slot [outputs, inputs]."""
        rows, columns = self.slots[path].shape
        return Matrix(self._stored(path, path, (rows, columns)), (rows, columns), self.bias(path))

    def stack(self, path: str) -> Stack:
        """The matrices of a slot [entries, outputs, inputs]."""
        entries, rows, columns = self.slots[path].shape
        shape = (entries, rows, columns)
        return Stack(self._stored(path, path, shape), shape, self.bias(path))

    def entries(self, path: str) -> Iterator[Matrix]:
        """The matrices of a stack in turn; the same codes as nowhere else, also not those of `stack`."""
        entries, rows, columns = self.slots[path].shape
        bias = self.bias(path)
        for entry in range(entries):
            stored = self._stored(path, f"{path}[{entry}]", (rows, columns))
            yield Matrix(stored, (rows, columns), None if bias is None else bias[entry])

    def heads(self, path: str) -> tuple[Stack, bool]:
        """The matrices of a slot, one for each head; never transposed."""
        return self.stack(path), False

    def floats(self, path: str) -> NDArray[np.float32]:
        """The values of a slot that is no matrix of codes."""
        weight = self.slots[path]
        if math.prod(weight.shape) <= _AT_ONCE:
            return self.drawn.values(path, weight).astype(np.float32)
        return self._in_parts(path, weight)

    def _in_parts(self, path: str, weight: Weight) -> NDArray[np.float32]:
        """The same numbers drawn some rows at a time, so that a large slot takes no more memory than a file's."""
        out = np.empty(weight.shape, np.float32)
        chance, step = generator(self.drawn.seed, path), max(1, _AT_ONCE // math.prod(weight.shape[1:]))
        spread, centre = self.drawn.spread(path, weight), float(self.drawn.centre(path, weight, np.zeros(0)))
        for at in range(0, len(out), step):
            rows = out[at : at + step]
            rows[:] = (chance.random(rows.shape) * 2.0 - 1.0) * spread + centre
        return out

    def integers(self, path: str) -> NDArray[np.int64]:
        """The values of an integer slot."""
        values: NDArray[np.int64] = self.drawn.values(path, self.slots[path])
        return values

    def bias(self, path: str) -> NDArray[np.float32] | None:
        """The ordinary bias beside a slot's matrix, if it has one."""
        weight = self.slots[path]
        if not weight.bias:
            return None
        return self.drawn.bias(path, weight.bias_shape(weight.shape)).astype(np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes of all slots in a file: codes with their scales and biases, everything else in bf16."""
        return sum(self._bytes(weight) for weight in self.slots.values())

    def _bytes(self, weight: Weight) -> int:
        values = math.prod(weight.shape)
        coded = self._coded(weight)
        return values * self.bits // 8 + values // self.group * 4 if coded else values * 2

    def _coded(self, weight: Weight) -> bool:
        return weight.rule == "matrix" and weight.shape[-1] % self.group == 0

    def _stored(self, path: str, name: str, shape: tuple[int, ...]) -> Codes | Values:
        weight = self.slots[path]
        if not self._coded(weight):
            return Values(_bf16(self.drawn.values(path, weight)).reshape(shape), "BF16")
        start = int(generator(self.drawn.seed, name).integers(0, _BLOCK))
        words = _read(_words(), start, (*shape[:-1], shape[-1] * self.bits // 32))
        top = 2**self.bits - 1
        step = np.float32(2 * self.drawn.spread(path, weight) / top)
        scales = _read(_factors(), start % _factors().size, (*shape[:-1], shape[-1] // self.group))
        scales *= step
        _rounded(scales)
        return Codes(words, scales, _rounded(scales * np.float32(-top / 2)), self.bits, self.group, "BF16")


def _read(block: NDArray[Any], start: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """So many entries of the block from `start` on, round and round."""
    made = np.empty(math.prod(shape), block.dtype)
    at = 0
    while at < made.size:
        part = block[start : start + made.size - at]
        made[at : at + part.size] = part
        at, start = at + part.size, 0
    return made.reshape(shape)


def _rounded(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values made the nearest numbers of bf16, where they lie; they are finite."""
    whole = values.reshape(-1).view(np.uint32)
    for start in range(0, whole.size, _AT_ONCE):
        bits = whole[start : start + _AT_ONCE]
        bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        bits &= np.uint32(0xFFFF0000)
    return values


def _bf16(values: NDArray[Any]) -> NDArray[np.uint16]:
    return (_rounded(np.array(values, np.float32, order="C")).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
