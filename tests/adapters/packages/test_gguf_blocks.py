"""The row arithmetic against decoders that work value by value, and MLX's own unpacking of the repack."""

from __future__ import annotations

import random
import struct

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensorfold.adapters.packages import gguf_types
from tensorfold.adapters.packages.gguf_blocks import (
    AFFINE_BITS,
    NotExactError,
    affine_scales,
    affine_words,
    bfloat16_bits,
    float32_rows,
    uninterleave_rows,
)
from tests.adapters.packages.gguf_samples import BLOCK, QUANTIZED, decoded, random_rows

KINDS = {kind.name: kind for kind in gguf_types.READ.values()}


def rows_of(name: str, rows: int = 6, width: int = 96) -> tuple[np.ndarray, bytes]:
    data = random_rows(name, rows, width, random.Random(name))
    return np.frombuffer(data, np.uint8).reshape(rows, -1), data


@pytest.mark.parametrize("name", BLOCK)
def test_every_type_decodes_to_the_values_of_its_definition(name: str) -> None:
    rows, data = rows_of(name)
    values = float32_rows(KINDS[name], rows)
    assert values.dtype == np.float32
    assert values.shape == (6, 96)
    assert values.ravel().tolist() == decoded(name, data)


@pytest.mark.parametrize("name", QUANTIZED)
def test_the_affine_repack_unpacks_to_exactly_the_same_values(name: str) -> None:
    kind = KINDS[name]
    rows, data = rows_of(name)
    scales, biases = affine_scales(kind, rows)
    words = affine_words(kind, rows)
    assert (words.dtype, words.shape) == (np.dtype("<u4"), (6, 96 * AFFINE_BITS[kind] // 32))
    assert scales.dtype == biases.dtype == np.float16
    wide_scales, wide_biases = (mx.array(part).astype(mx.float32) for part in (scales, biases))
    unpacked = np.array(mx.dequantize(mx.array(words), wide_scales, wide_biases, 32, AFFINE_BITS[kind]))
    assert unpacked.ravel().tolist() == decoded(name, data)


@pytest.mark.parametrize("name", QUANTIZED)
def test_codes_are_packed_low_bits_first(name: str) -> None:
    kind = KINDS[name]
    rows, _ = rows_of(name, rows=1, width=32)
    scale, bias = (float(part[0, 0]) for part in affine_scales(kind, rows))
    word = int(affine_words(kind, rows)[0, 0])
    codes = [word >> shift & (1 << AFFINE_BITS[kind]) - 1 for shift in range(0, 32, AFFINE_BITS[kind])]
    expected = float32_rows(kind, rows)[0, : len(codes)].tolist()
    assert [float(np.float32(scale) * np.float32(code) + np.float32(bias)) for code in codes] == expected


@pytest.mark.parametrize(("name", "scale"), [("Q8_0", 600.0), ("Q4_0", 9000.0), ("Q4_1", float("inf"))])
def test_a_scale_that_float16_cannot_hold_is_refused(name: str, scale: float) -> None:
    data = struct.pack("<e", scale) + bytes(BLOCK[name][1] - 2)
    with pytest.raises(NotExactError, match="float16"):
        affine_scales(KINDS[name], np.frombuffer(data, np.uint8).reshape(1, -1))


@pytest.mark.parametrize(("name", "data"), [("F32", b"\0\0\x80\x7f"), ("F16", b"\0\x7e"), ("BF16", b"\x80\xff")])
def test_values_that_are_not_finite_are_refused(name: str, data: bytes) -> None:
    with pytest.raises(NotExactError, match="finite"):
        float32_rows(KINDS[name], np.frombuffer(data, np.uint8).reshape(1, -1))


@pytest.mark.parametrize(
    ("bits", "rounded"),
    [
        (0x3F800000, 0x3F80),  # 1 stays
        (0x3F808000, 0x3F80),  # a tie goes to the even neighbour below
        (0x3F818000, 0x3F82),  # and to the even one above
        (0x3F808001, 0x3F81),  # past a tie goes up
        (0x3F807FFF, 0x3F80),  # short of it down
        (0xBF808001, 0xBF81),  # signs do not matter
        (0x00000001, 0x0000),  # the smallest subnormal vanishes
        (0x80000000, 0x8000),  # minus zero stays
    ],
)
def test_bfloat16_rounds_to_the_nearest_and_ties_to_even(bits: int, rounded: int) -> None:
    value = np.array([bits], np.uint32).view(np.float32)
    assert bfloat16_bits(value).tolist() == [rounded]


def test_a_value_that_rounds_past_bfloat16_is_refused() -> None:
    largest = np.array([0x7F7F0000], np.uint32).view(np.float32)
    assert bfloat16_bits(largest).tolist() == [0x7F7F]
    with pytest.raises(NotExactError, match="bfloat16"):
        bfloat16_bits(np.array([0x7F7F8000], np.uint32).view(np.float32))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(heads=st.integers(1, 4), half=st.integers(1, 5), width=st.integers(0, 3))
def test_rows_2j_and_2j_plus_1_of_a_head_become_rows_j_and_j_plus_half(heads: int, half: int, width: int) -> None:
    count = heads * half * 2
    rows = np.arange(count * max(width, 1)).reshape((count, width) if width else (count,))
    made = uninterleave_rows(rows, 2 * half)
    assert made.shape == rows.shape
    for head in range(heads):
        for j in range(half):
            for which in (0, 1):
                target = made[head * 2 * half + which * half + j]
                assert np.array_equal(target, rows[head * 2 * half + 2 * j + which])
