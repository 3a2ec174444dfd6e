"""The trellis oracle against vectors made with ExLlamaV3: every codebook at every width, and whole layers."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.kernels.reference.exl3 import dequantize, hadamard, rotated_weight, signs, states, tile, values

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "exl3_vectors.json").read_text())


def generated(seed: int, count: int) -> NDArray[np.uint16]:
    """The words of the vectors' own generator."""
    words = []
    for _ in range(count):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        words.append(seed >> 16)
    return np.array(words, np.uint16)


def scales(seed: int, count: int) -> NDArray[np.float64]:
    """Signed magnitudes from 0.5 to 1, by the vectors' rule."""
    words = generated(seed, count).astype(np.int64)
    return np.asarray(np.where(words >> 15, -1.0, 1.0) * (256 + (words & 255)) / 512)


@pytest.mark.parametrize("name", VECTORS["tables"])
def test_a_codebook_is_that_of_the_format(name: str) -> None:
    table = values(np.arange(1 << 16), name)
    assert hashlib.sha256(table.astype("<f2").tobytes()).hexdigest() == VECTORS["tables"][name]


@pytest.mark.parametrize("vector", VECTORS["tiles"], ids=lambda v: f"{v['codebook']}_{v['bits']:g}")
def test_a_tile_is_that_of_the_format(vector: dict[str, Any]) -> None:
    words = generated(vector["seed"], round(16 * vector["bits"]))
    assert "".join(f"{state:04x}" for state in states(words, vector["bits"])[:8]) == vector["first_states"]
    made = tile(words, vector["bits"], vector["codebook"])
    assert hashlib.sha256(made.astype("<f2").tobytes()).hexdigest() == vector["sha256"]


@pytest.mark.parametrize("vector", VECTORS["layers"], ids=lambda v: f"{v['codebook']}_{v['bits']:g}")
def test_a_layer_is_that_of_the_format(vector: dict[str, Any]) -> None:
    inputs, outputs, seed = vector["inputs"], vector["outputs"], vector["seed"]
    shape = (inputs // 16, outputs // 16, round(16 * vector["bits"]))
    trellis = generated(seed, int(np.prod(shape))).reshape(shape)
    rotated = rotated_weight(trellis, vector["codebook"])
    assert hashlib.sha256(rotated.astype("<f2").tobytes()).hexdigest() == vector["rotated_sha256"]
    weight = dequantize(trellis, scales(seed + 1, inputs), scales(seed + 2, outputs), vector["codebook"])
    assert np.abs(weight[0, :8] - vector["weight"]).max() < 1e-12
    rows = ((generated(seed + 3, 2 * inputs).astype(np.float64) - 32768) / 32768).astype(np.float16)
    result = rows.astype(np.float64).reshape(2, inputs) @ weight
    assert np.abs(result[0, :16] - vector["result"]).max() < 1e-10
    assert np.abs(result[1, -8:] - vector["result_end"]).max() < 1e-10


def test_the_rotation_undoes_itself_within_each_block() -> None:
    rows = np.random.default_rng(1).standard_normal((2, 256))
    assert np.abs(hadamard(hadamard(rows)) - rows).max() < 1e-12
    first = rows.copy()
    first[:, 128:] = 0.0
    assert not hadamard(first)[:, 128:].any()


def test_packed_signs_are_read_from_the_least_significant_bit() -> None:
    assert signs(np.array([0x8001, 0x0002], np.uint16)).tolist() == [-1, *[1] * 14, -1, 1, -1, *[1] * 14]
