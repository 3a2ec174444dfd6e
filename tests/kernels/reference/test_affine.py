"""The affine oracle against itself and against MLX's own codes."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from tensorfold.kernels.reference.affine import dequantize, pack, quantize, unpack

BITS = (2, 3, 4, 5, 6, 8)


@pytest.mark.parametrize("bits", BITS)
def test_packing_and_unpacking_are_inverse(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 2**bits, (3, 96))
    words = pack(codes, bits)
    assert words.shape == (3, 96 * bits // 32) and words.dtype == np.uint32
    assert np.array_equal(unpack(words, bits), codes)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group", (32, 64, 128))
def test_codes_scales_and_biases_are_those_of_mlx(bits: int, group: int) -> None:
    values = np.random.default_rng(bits * group).standard_normal((8, 256))
    ours = words, scales, biases = quantize(values, bits, group)
    theirs = mx.quantize(mx.array(values.astype(np.float32)), group_size=group, bits=bits)
    for mine, other in zip(ours, theirs, strict=True):
        assert np.array_equal(np.asarray(mine), np.array(other))
    opened = dequantize(words, scales, biases, bits, group)
    assert np.abs(opened - np.array(mx.dequantize(*theirs, group_size=group, bits=bits))).max() <= 1e-5
    assert np.abs(opened - values).max() <= np.abs(scales).max() * 1.001
