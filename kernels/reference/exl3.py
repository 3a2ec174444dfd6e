"""EXL3's trellis codes, read bit by bit: tiles to half-precision values, and a layer's weight in float64.

A 16 x 16 tile is one circular stream of 256 * bits bits; each value is a function of the 16 stream bits that end where
its own new bits end. Source: ExLlamaV3's format; values are checked against vectors made with it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BLOCK = 128
_TILE = 256
_MULTIPLIERS = {"3inst": 89226354, "mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}
_ADDED = {"3inst": 64248484, "mcg": 0, "mul1": 0}


def states(words: NDArray[np.uint16], bits: float) -> NDArray[np.int64]:
    """The 256 states of a tile of 16 * `bits` words, in stream order; halves of `bits` alternate two widths."""
    # Pairs of words are little-endian uint32s whose bits are read from the most significant.
    stream = np.unpackbits(words.reshape(-1, 2)[:, ::-1].astype(">u2").reshape(-1).view(np.uint8)).astype(np.int64)
    place = np.arange(1, _TILE + 1)
    doubled = round(2 * bits)
    ends = place * doubled // 2 if doubled % 2 == 0 else (place * doubled - place % 2) // 2
    window = (ends[:, None] - np.arange(16, 0, -1)) % len(stream)
    made: NDArray[np.int64] = (stream[window] << np.arange(15, -1, -1)).sum(axis=1)
    return made


def values(codes: NDArray[np.int64], codebook: str) -> NDArray[np.float16]:
    """What states stand for, by the codebook `3inst`, `mcg` or `mul1`; one rounding to half precision each."""
    hashed = ((codes * _MULTIPLIERS[codebook] + _ADDED[codebook]) & 0xFFFFFFFF).astype(np.uint32)
    if codebook == "mul1":
        total = 1024 + hashed.view(np.uint8).reshape(*hashed.shape, 4).sum(axis=-1).astype(np.float64)
        return np.asarray(total * _half(0x1EEE) + _half(0xC931), np.float16)
    mixed = (hashed & np.uint32(0x8FFF8FFF)) ^ np.uint32(0x3B603B60)
    low, high = ((mixed >> shift & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64) for shift in (0, 16))
    return np.asarray(low + high, np.float16)


def tile(words: NDArray[np.uint16], bits: float, codebook: str) -> NDArray[np.float16]:
    """The tile [16 inputs, 16 outputs] of one packed stream."""
    place = np.arange(_TILE)
    lane, item = place // 8, place % 8
    made = np.empty((16, 16), np.float16)
    made[2 * (lane % 4) + (item & 1) + 8 * (item >> 1 & 1), lane // 4 + 8 * (item >> 2)] = values(
        states(words, bits), codebook
    )
    return made


def rotated_weight(trellis: NDArray[np.uint16], codebook: str) -> NDArray[np.float16]:
    """The stored matrix [K, N], still rotated, of `trellis` [K / 16, N / 16, 16 * bits]."""
    bits = trellis.shape[2] / 16
    rows = [np.concatenate([tile(words, bits, codebook) for words in row], axis=1) for row in trellis]
    return np.concatenate(rows, axis=0)


def hadamard(rows: Floats) -> Floats:
    """rows [..., K]: each 128 neighbours times Sylvester's matrix over the root of 128."""
    matrix = np.ones((1, 1))
    while len(matrix) < BLOCK:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    turned: Floats = rows.reshape(*rows.shape[:-1], -1, BLOCK) @ matrix / np.sqrt(BLOCK)
    return turned.reshape(rows.shape)


def dequantize(trellis: NDArray[np.uint16], input_scale: Floats, output_scale: Floats, codebook: str) -> Floats:
    """The weight [K, N], inputs first: y = x @ W. Scales are [K] before and [N] behind the two rotations."""
    turned = hadamard(hadamard(rotated_weight(trellis, codebook).astype(np.float64)).T).T
    weight: Floats = input_scale[:, None] * turned * output_scale
    return weight


def signs(words: NDArray[np.uint16]) -> Floats:
    """Scales of plain signs [16 * words]: a set bit, from the least significant, is -1."""
    set_bits = words[:, None] >> np.arange(16) & 1
    made: Floats = np.where(set_bits, -1.0, 1.0).reshape(-1)
    return made


def _half(bits: int) -> float:
    return float(np.array(bits, np.uint16).view(np.float16))
