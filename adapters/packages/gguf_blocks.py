"""The arithmetic of GGUF rows: to float32 values, and to MLX affine codes without changing a value.

A Q4_1 block is w = d * q + m with q in 0..15, which is the affine form with scale d and bias m. Q4_0 is
d * (q - 8), so its bias is -8 * d; Q8_0 is d * q with q in -128..127, so its codes are q + 128 and its bias -128 * d.
Both factors are powers of two: exact in float16 unless they overflow, which is refused. Rows are uint8 arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tensorfold.adapters.packages.gguf_types import BF16, F16, F32, Q4_0, Q4_1, Q8_0, TensorType

GROUP = 32
AFFINE_BITS = {Q4_0: 4, Q4_1: 4, Q8_0: 8}
_BIAS_FACTOR = {Q4_0: np.float16(-8), Q8_0: np.float16(-128)}
_CODES_AT = {Q4_0: 2, Q4_1: 4, Q8_0: 2}


class NotExactError(ValueError):
    """A value that the target form cannot hold exactly, or that is no finite number."""


def float32_rows(kind: TensorType, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Values of rows [R, row_bytes] as float32 [R, width]. Raises NotExactError for values that are not finite."""
    if kind == F32:
        values = rows.view("<f4").astype(np.float32)
    elif kind == F16:
        values = rows.view("<f2").astype(np.float32)
    elif kind == BF16:
        values = (rows.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    else:
        codes = _codes(kind, rows).astype(np.float32)
        scales, biases = (part[:, :, None].astype(np.float32) for part in affine_scales(kind, rows))
        values = (codes * scales + biases).reshape(len(rows), -1)
    if not np.isfinite(values).all():
        raise NotExactError("a value is not a finite number")
    return values


def affine_scales(kind: TensorType, rows: NDArray[np.uint8]) -> tuple[NDArray[np.float16], NDArray[np.float16]]:
    """Scales and biases of quantized rows, float16 [R, width / 32] each. Raises NotExactError."""
    blocks = rows.reshape(len(rows), -1, kind.block_bytes)
    scales = _float16_at(blocks, 0)
    if kind == Q4_1:
        biases = _float16_at(blocks, 2)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            biases = scales * _BIAS_FACTOR[kind]
    if not (np.isfinite(scales).all() and np.isfinite(biases).all()):
        raise NotExactError("a scale is not a finite number or too large for float16")
    return scales, biases


def affine_words(kind: TensorType, rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Packed codes of quantized rows, uint32 [R, width * bits / 32]: little-endian, the first code lowest."""
    codes = _codes(kind, rows).reshape(len(rows), -1)
    if AFFINE_BITS[kind] == 4:
        codes = codes[:, 0::2] | codes[:, 1::2] << np.uint8(4)
    return np.ascontiguousarray(codes).view("<u4")


def bfloat16_bits(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """bfloat16 bit patterns, rounded to the nearest and ties to even. Raises NotExactError on overflow."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) >> np.uint32(16)
    if (rounded & np.uint32(0x7F80) == np.uint32(0x7F80)).any():
        raise NotExactError("a value is too large for bfloat16")
    return rounded.astype(np.uint16)


def uninterleave_rows(rows: NDArray[Any], head_dim: int) -> NDArray[Any]:
    """Query or key rows from llama.cpp's order to the half-split order of config.json's rotary embedding.

    In each head, rows 2j and 2j + 1 become rows j and j + head_dim / 2. `rows` [R, ...] holds whole heads.
    """
    pairs = rows.reshape(len(rows) // head_dim, head_dim // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _float16_at(blocks: NDArray[np.uint8], at: int) -> NDArray[np.float16]:
    return np.ascontiguousarray(blocks[:, :, at : at + 2]).view("<f2")[:, :, 0].astype(np.float16)


def _codes(kind: TensorType, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Unsigned codes in value order, uint8 [R, width / 32, 32]."""
    blocks = rows.reshape(len(rows), -1, kind.block_bytes)
    packed = blocks[:, :, _CODES_AT[kind] :]
    if kind == Q8_0:
        # The signed byte plus 128, as an unsigned byte, has its top bit turned over.
        return packed ^ np.uint8(0x80)
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=2)
