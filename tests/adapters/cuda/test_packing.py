"""Matrices packed on their device are word for word what the packed order's oracle makes of them."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="torch is not installed")

from tensorfold.adapters.cuda import packing  # noqa: E402
from tensorfold.adapters.cuda.packed import packed  # noqa: E402
from tensorfold.application.stored_weights import Codes, Stored, Values  # noqa: E402
from tensorfold.kernels.cuda import affine_pack  # noqa: E402
from tensorfold.kernels.reference.affine import pack  # noqa: E402
from tests.adapters.cuda.host_launches import unpacked  # noqa: E402


def bf16(bits: NDArray[np.uint16]) -> object:
    return torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16)


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8])
@pytest.mark.parametrize(("outputs", "group"), [(32, 64), (21, 64), (48, 128)])
def test_codes(bits: int, outputs: int, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_AT_ONCE", 1 << 12)  # several pieces
    chance = np.random.default_rng(bits)
    inputs = 256
    codes = chance.integers(0, 2**bits, (outputs, inputs))
    scales, biases = (chance.integers(0, 2**16, (outputs, inputs // group)).astype(np.uint16) for _ in range(2))
    width = packing.packed_width(bits)
    blocks = packing.new_blocks(outputs, inputs, width, "cpu")
    words = torch.from_numpy(pack(codes, bits).view(np.int32))
    packing.pack_codes(words, bf16(scales), bf16(biases), bits, blocks)
    wide = [np.repeat(part, group // 64, axis=1) for part in (scales, biases)]
    assert np.array_equal(blocks.numpy().view(np.uint32), affine_pack.pack_affine(codes, wide[0], wide[1], width))


@pytest.mark.parametrize("outputs", [16, 37])
def test_bf16_numbers(outputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_AT_ONCE", 1 << 12)
    values = np.random.default_rng(1).integers(0, 2**16, (outputs, 192)).astype(np.uint16)
    blocks = packing.new_blocks(outputs, 192, 16, "cpu")
    packing.pack_bf16(bf16(values), blocks)
    filled = np.pad(values, ((0, -outputs % 16), (0, 0)))
    assert np.array_equal(blocks.numpy().view(np.uint32), affine_pack.pack_bf16(filled))


def stored(seed: int, outputs: int, inputs: int, bits: int, group: int) -> Stored:
    """A random slot; `bits` 16 is dense."""
    chance = np.random.default_rng(seed)

    def drawn(*shape: int) -> NDArray[np.float32]:
        values = chance.standard_normal(shape).astype(np.float32)
        cut: NDArray[np.float32] = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
        return cut

    if bits == 16:
        return Values((drawn(outputs, inputs).view(np.uint32) >> 16).astype(np.uint16), "BF16")
    words = pack(chance.integers(0, 2**bits, (outputs, inputs)), bits)
    return Codes(words, drawn(outputs, inputs // group), drawn(outputs, inputs // group), bits, group, "BF16")


@pytest.mark.parametrize("bits", [2, 3, 4, 5, 6, 8, 16])
@pytest.mark.parametrize("group", [64, 128])
def test_four_outputs_of_a_gate_and_four_of_what_it_opens_lie_in_turn(
    bits: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_AT_ONCE", 1 << 12)
    slots = [stored(seed, 40, 256, bits, group) for seed in (1, 2)]
    numbers = []
    for gated in (False, True):
        made = packed("gate", slots, [(40, 256)] * 2, "cpu", gated)
        assert made.matrix.gated == gated
        assert made.outputs == (40, 40)
        numbers.append(unpacked(made.blocks.data_ptr(), made.matrix))
    gate, up = np.split(numbers[0], 2)
    turns = [part[start : start + 4] for start in range(0, 40, 4) for part in (gate, up)]
    assert np.array_equal(numbers[1], np.concatenate(turns))


def test_no_span_of_a_gated_matrix_is_a_matrix() -> None:
    slots = [stored(seed, 16, 64, 4, 64) for seed in (1, 2)]
    plain, gated = (packed("gate", slots, [(16, 64)] * 2, "cpu", gated) for gated in (False, True))
    assert plain.among(16, 32).matrix.outputs == 16
    with pytest.raises(ValueError, match="of a gate and what it opens"):
        gated.among(16, 32)
