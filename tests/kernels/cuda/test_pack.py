"""The packed order of a matrix, read as the row kernel's lanes read it, and the numbers that masked codes are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.kernels.cuda.affine_pack import block_words, pack_affine, pack_bf16, packed_bytes

Codes = NDArray[np.int64]


def bf16(bits: NDArray[np.int64]) -> NDArray[np.float64]:
    """The numbers that bf16 bit patterns stand for."""
    numbers: NDArray[np.float64] = (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return numbers


def drawn(outputs: int, inputs: int, bits: int) -> tuple[Codes, NDArray[np.uint16], NDArray[np.uint16]]:
    chance = np.random.default_rng(outputs + bits)
    codes = chance.integers(0, 2**bits, (outputs, inputs))
    scales, biases = (chance.integers(0, 2**16, (outputs, inputs // 64)).astype(np.uint16) for _ in range(2))
    return codes, scales, biases


def lane_code(block: NDArray[np.uint32], bits: int, lane: int, word: int, step: int, half: int) -> int:
    """One code of one lane, from the words of its block."""
    low = int(block[lane * 4 + word]) >> (4 * step + 16 * half) & 15
    if bits == 5:
        return low | (int(block[128 + lane]) >> (word * 4 + step + 16 * half) & 1) << 4
    if bits == 6:
        return low | (int(block[128 + lane * 2 + (word >> 1)]) >> ((word & 1) * 8 + step * 2 + 16 * half) & 3) << 4
    if bits == 8:
        return low | (int(block[128 + lane * 4 + word]) >> (4 * step + 16 * half) & 15) << 4
    return low


@pytest.mark.parametrize("bits", [4, 5, 6, 8])
def test_every_code_lies_where_its_lane_reads_it(bits: int) -> None:
    codes, scales, biases = drawn(32, 192, bits)
    packed = pack_affine(codes, scales, biases, bits)
    assert packed.shape == (2, 3, block_words(bits))
    assert packed.nbytes == packed_bytes(32, 192, bits)
    read = np.zeros_like(codes)
    for tile, group in np.ndindex(2, 3):
        for lane, word, step, half in np.ndindex(32, 4, 4, 2):
            output = tile * 16 + (word & 1) * 8 + lane // 4
            place = group * 64 + lane % 4 * 16 + 4 * step + (word >> 1) * 2 + half
            read[output, place] = lane_code(packed[tile, group], bits, lane, word, step, half)
    assert np.array_equal(read, codes)


@pytest.mark.parametrize("bits", [4, 5, 6, 8])
def test_scale_and_bias_of_outputs_r_and_r_plus_8_lie_side_by_side(bits: int) -> None:
    codes, scales, biases = drawn(16, 128, bits)
    pairs = pack_affine(codes, scales, biases, bits)[0, :, -16:].reshape(2, 8, 2)
    for group, r, h in np.ndindex(2, 8, 2):
        assert pairs[group, r, h] == int(scales[r + 8 * h, group]) | int(biases[r + 8 * h, group]) << 16


def test_outputs_that_are_missing_from_a_tile_are_codes_and_scales_of_zero() -> None:
    codes, scales, biases = drawn(20, 64, 4)
    packed = pack_affine(codes, scales, biases, 4)
    more = ((0, 12), (0, 0))
    whole = pack_affine(np.pad(codes, more), np.pad(scales, more), np.pad(biases, more), 4)
    assert np.array_equal(packed, whole)
    assert not packed[1, 0, 128 + 8 :].any()


def test_bf16_numbers_lie_step_by_step() -> None:
    values = np.random.default_rng(1).integers(0, 2**16, (16, 64)).astype(np.uint16)
    words = pack_bf16(values)[0, 0].reshape(4, 32, 4)
    for step, lane, word, half in np.ndindex(4, 32, 4, 2):
        place = lane % 4 * 16 + 4 * step + (word >> 1) * 2 + half
        assert words[step, lane, word] >> (16 * half) & 0xFFFF == values[(word & 1) * 8 + lane // 4, place]


def test_a_masked_nibble_is_its_code_times_a_power_of_two() -> None:
    nibbles = np.arange(16)
    assert np.array_equal(bf16(nibbles), nibbles * 2.0**-133)
    assert np.array_equal(bf16(nibbles << 4), nibbles * 2.0**-129)


def test_a_code_of_up_to_7_bits_in_the_fraction_is_128_more() -> None:
    codes = np.arange(128)
    assert np.array_equal(bf16(0x4300 | codes), codes + 128.0)
