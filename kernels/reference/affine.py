"""MLX's affine codes, read bit by bit.

A row of K codes is one little-endian bit stream in uint32 words; code k has `bits` bits from stream bit k * bits. Group
g of `group` codes has one scale and one bias: value = scale * code + bias.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def unpack(words: NDArray[np.uint32], bits: int) -> NDArray[np.int64]:
    """Codes [..., K] of `words` [..., K * bits / 32]."""
    stream = np.unpackbits(np.ascontiguousarray(words, "<u4").view(np.uint8), axis=-1, bitorder="little")
    pieces = stream.reshape(*stream.shape[:-1], -1, bits).astype(np.int64)
    codes: NDArray[np.int64] = (pieces << np.arange(bits)).sum(axis=-1)
    return codes


def pack(codes: NDArray[np.int64], bits: int) -> NDArray[np.uint32]:
    """The inverse of `unpack`; codes [..., K] with K a multiple of 32."""
    pieces = (codes[..., None] >> np.arange(bits)) & 1
    stream = pieces.reshape(*codes.shape[:-1], -1).astype(np.uint8)
    return np.packbits(stream, axis=-1, bitorder="little").view("<u4").astype(np.uint32)


def dequantize(words: NDArray[np.uint32], scales: Floats, biases: Floats, bits: int, group: int) -> Floats:
    """Values [..., K] of codes with `scales` and `biases` [..., K / group]."""
    codes = unpack(words, bits).astype(np.float64)
    values: Floats = codes * np.repeat(scales, group, axis=-1) + np.repeat(biases, group, axis=-1)
    return values


def quantize(values: Floats, bits: int, group: int) -> tuple[NDArray[np.uint32], Floats, Floats]:
    """Words, scales and biases of `values` [..., K]: the largest magnitude of a group is its bias, exactly.

    Computed in float32, as MLX does, and returned in float64.
    """
    grouped = values.astype(np.float32).reshape(*values.shape[:-1], -1, group)
    low, high = grouped.min(axis=-1), grouped.max(axis=-1)
    below = np.abs(low) > np.abs(high)
    top = np.float32(2**bits - 1)
    scales = np.maximum((high - low) / top, np.float32(1e-7))
    scales = np.where(below, scales, -scales)
    edge = np.where(below, low, high)
    steps = np.rint(edge / scales)
    scales = np.where(steps != 0, edge / np.where(steps != 0, steps, np.float32(1)), scales).astype(np.float32)
    biases = np.where(steps != 0, edge, np.float32(0)).astype(np.float32)
    codes = np.clip(np.rint((grouped - biases[..., None]) / scales[..., None]), 0, top).astype(np.int64)
    words = pack(codes.reshape(values.shape), bits)
    return words, scales.astype(np.float64), biases.astype(np.float64)
