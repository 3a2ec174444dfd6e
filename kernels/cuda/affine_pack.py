"""The order in which the row kernel streams a matrix, in numpy: what every packing is held against.

A block is 16 outputs x 64 inputs. Lane 4r + q of a warp holds, for outputs r and r + 8, inputs 16q to 16q + 15: word j
of it has output r + 8 (j & 1) and, in step s, the inputs 4s + 2 (j >> 1) and the one behind it, in the low and the high
half of the word. So a lane reads its x as 16 numbers in a row, and a shift and a mask make an operand.

    codes of 4 to 8 bits   32 x 4 words, nibble s of a half = low four bits; then the bits above in their own plane:
                           5: bit 4j + s of one word; 6: field 4 (j & 1) + s of word j >> 1; 8: nibble s of word j
                           then 16 words scale | bias << 16 (bf16), of outputs 0, 8, 1, 9, ... 7, 15
    bf16                   4 steps x 32 lanes x 4 words

Outputs are filled up to 16 with codes, scales and biases of zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GROUP = 64
Words = NDArray[np.uint32]


def block_words(bits: int) -> int:
    """Words of a block of 16 outputs x 64 inputs; `bits` 4, 5, 6 or 8, or 16 for bf16."""
    return 512 if bits == 16 else 128 + (bits - 4) * 32 + 16


def packed_bytes(outputs: int, inputs: int, bits: int) -> int:
    """Bytes of a packed matrix."""
    return (outputs + 15) // 16 * (inputs // GROUP) * block_words(bits) * 4


def _halves(values: NDArray[np.int64], outputs: int) -> NDArray[np.int64]:
    """[N, K] as [tile, group, lane, word j, step s, half]."""
    rows = np.zeros(((outputs + 15) // 16 * 16, values.shape[1]), np.int64)
    rows[:outputs] = values
    # tile, h, r, group, q, s, pair, half -> tile, group, r, q, pair, h, s, half
    parts = rows.reshape(-1, 2, 8, values.shape[1] // GROUP, 4, 4, 2, 2).transpose(0, 3, 2, 4, 6, 1, 5, 7)
    return parts.reshape(*parts.shape[:2], 32, 4, 4, 2)


def pack_affine(codes: NDArray[np.int64], scales: NDArray[np.uint16], biases: NDArray[np.uint16], bits: int) -> Words:
    """Blocks [tile, group, words] of codes [N, K] with bf16 scales and biases [N, K / 64] as their bits."""
    outputs = codes.shape[0]
    parts = _halves(codes, outputs)
    step, half = np.arange(4)[:, None], np.arange(2)[None, :]
    low = ((parts & 15) << (4 * step + 16 * half)).sum(axis=(-2, -1))
    above = parts >> 4
    word = np.arange(4)[:, None, None]
    place = {
        4: 0 * word,
        5: word * 4 + step + 16 * half,
        6: ((word & 1) * 4 + step) * 2 + 16 * half,
        8: 4 * step + 16 * half,
    }
    high = (above << place[bits]).sum(axis=(-2, -1))
    planes = {4: high[..., :0], 5: high.sum(axis=-1, keepdims=True), 6: high.reshape(*high.shape[:-1], 2, 2).sum(-1)}
    plane = planes.get(bits, high)
    both = np.zeros((parts.shape[0] * 16, scales.shape[1]), np.int64)
    both[:outputs] = scales.astype(np.int64) | biases.astype(np.int64) << 16
    pairs = both.reshape(-1, 2, 8, scales.shape[1]).transpose(0, 3, 2, 1)
    flat = [piece.reshape(*parts.shape[:2], -1) for piece in (low, plane, pairs)]
    return np.concatenate(flat, axis=-1).astype(np.uint32)


def pack_bf16(values: NDArray[np.uint16]) -> Words:
    """Blocks [tile, group, words] of bf16 numbers [N, K] as their bits."""
    parts = _halves(values.astype(np.int64), values.shape[0])
    words = (parts << (16 * np.arange(2))).sum(axis=-1)  # tile, group, lane, word, step
    blocks: Words = words.transpose(0, 1, 4, 2, 3).reshape(*words.shape[:2], -1).astype(np.uint32)
    return blocks
