"""Buffers as a kernel sees them: between two fences, poisoned where nothing was written yet.

A write outside a buffer changes a fence. An element that still holds the poison was not written. Reads outside give
NaN or absurd integers, which values then show.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tests.emulator.errors import EmulatorError

FENCE = 4096
POISONS = (0xFF, 0xA5)  # all ones: NaN in every floating format; the second settles whether an integer was written

METAL_TYPES = {
    mx.bool_: "bool",
    mx.int8: "char",
    mx.uint8: "uchar",
    mx.int16: "short",
    mx.uint16: "ushort",
    mx.int32: "int",
    mx.uint32: "uint",
    mx.int64: "int64_t",
    mx.uint64: "uint64_t",
    mx.float16: "half",
    mx.bfloat16: "bfloat",
    mx.float32: "float",
}


def host(array: mx.array) -> NDArray[np.generic]:
    """The bytes of an array; bfloat16 as uint16."""
    made: NDArray[np.generic] = np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    return np.ascontiguousarray(made)


@dataclass(frozen=True, slots=True)
class Buffer:
    """`count` elements of `dtype` in the middle of `whole`."""

    name: str
    dtype: mx.Dtype
    shape: tuple[int, ...]
    whole: NDArray[np.uint8]
    poison: int = 0

    @property
    def middle(self) -> NDArray[np.uint8]:
        """The bytes between the fences."""
        return self.whole[FENCE:-FENCE]

    @property
    def address(self) -> int:
        """Where the first element lies."""
        return int(self.middle.ctypes.data) if self.middle.size else int(self.whole.ctypes.data) + FENCE

    def check_fences(self) -> None:
        """Raise when something was written beside the buffer."""
        if (self.whole[:FENCE] != POISONS[0]).any():
            raise EmulatorError(f"a write before the start of '{self.name}'")
        if (self.whole[-FENCE:] != POISONS[0]).any():
            raise EmulatorError(f"a write past the end of '{self.name}'")

    def suspects(self) -> NDArray[np.bool_]:
        """Which elements hold nothing but poison."""
        same: NDArray[np.bool_] = self.middle.reshape(-1, self.dtype.size) == self.poison
        return np.asarray(same.all(axis=1))

    def array(self) -> mx.array:
        """As MLX sees it."""
        plain = mx.array(self.middle.copy()) if self.middle.size else mx.zeros((0,), mx.uint8)
        made = plain != 0 if self.dtype == mx.bool_ else plain.view(self.dtype)
        return made.reshape(self.shape)


def _fenced(size: int, fill: int) -> NDArray[np.uint8]:
    whole = np.full(size + 2 * FENCE, POISONS[0], np.uint8)
    whole[FENCE : FENCE + size] = fill
    return whole


def given(name: str, array: mx.array) -> Buffer:
    """An input."""
    raw = host(array)
    whole = _fenced(raw.nbytes, 0)
    whole[FENCE : FENCE + raw.nbytes] = raw.reshape(-1).view(np.uint8)
    return Buffer(name, array.dtype, tuple(array.shape), whole)


def wanted(name: str, dtype: mx.Dtype, shape: tuple[int, ...], poison: int, value: float | None) -> Buffer:
    """An output: poisoned, or holding `value` where the launch asks for that."""
    size = int(np.prod(shape)) * dtype.size
    whole = _fenced(size, poison)
    if value is not None:
        raw = host(mx.full(shape, value, dtype))
        whole[FENCE : FENCE + size] = raw.reshape(-1).view(np.uint8)
    return Buffer(name, dtype, shape, whole, poison)
