"""Buffers as a kernel sees them: each ends at a page that nobody may touch, behind a fence of poison.

An access past the end, or far before the start, ends the run; a write just before the start changes the fence. An
element that still holds the poison was not written.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from tests.emulator.build import machine
from tests.emulator.errors import EmulatorError

FENCE = 64
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
    """`shape` elements of `dtype` at `address`; `poison` is what an output held before."""

    name: str
    dtype: mx.Dtype
    shape: tuple[int, ...]
    address: int
    middle: NDArray[np.uint8]
    fence: NDArray[np.uint8]
    poison: int = 0

    def check_fence(self) -> None:
        """Raise when something was written just before the buffer."""
        if (self.fence != POISONS[0]).any():
            raise EmulatorError(f"a write before the start of '{self.name}'")

    def suspects(self) -> NDArray[np.bool_]:
        """Which elements hold nothing but poison."""
        same: NDArray[np.bool_] = self.middle.reshape(-1, self.dtype.size) == self.poison
        return np.asarray(same.all(axis=1))

    def array(self) -> mx.array:
        """A copy as MLX sees it."""
        plain = mx.array(self.middle.copy()) if self.middle.size else mx.zeros((0,), mx.uint8)
        made = plain != 0 if self.dtype == mx.bool_ else plain.view(self.dtype)
        return made.reshape(self.shape)

    def release(self) -> None:
        """Give the memory back; nothing may be read after it."""
        machine().emu_release(ctypes.c_void_p(self.address))


def _allocated(name: str, dtype: mx.Dtype, shape: tuple[int, ...], poison: int = 0) -> Buffer:
    size = int(np.prod(shape)) * dtype.size
    allocate = machine().emu_buffer
    allocate.restype, allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    address: int | None = allocate(size)
    if address is None:
        raise EmulatorError(f"no memory for the {size} bytes of '{name}'")
    middle, fence = (
        np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(start))
        for start, count in ((address, size), (address - FENCE, FENCE))
    )
    fence[:] = POISONS[0]
    return Buffer(name, dtype, shape, address, middle, fence, poison)


def given(name: str, array: mx.array) -> Buffer:
    """An input."""
    made = _allocated(name, array.dtype, tuple(array.shape))
    made.middle[:] = host(array).reshape(-1).view(np.uint8)
    return made


def wanted(name: str, dtype: mx.Dtype, shape: tuple[int, ...], poison: int, value: float | None) -> Buffer:
    """An output: poisoned, or holding `value` where the launch asks for that."""
    made = _allocated(name, dtype, shape, poison)
    made.middle[:] = poison if value is None else host(mx.full(shape, value, dtype)).reshape(-1).view(np.uint8)
    return made
