"""Stored weights are read the same whole and entry by entry, and codes unpack as their format says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.application.stored_weights import (
    Codes,
    StoredWeights,
    Values,
    as_float32,
    entry_of,
    stored_values,
    unpacked,
)
from tensorfold.domain.families.binding import Bound, resolve
from tensorfold.domain.families.storage import TensorHeader, parse_quantization
from tensorfold.kernels.reference.affine import dequantize, quantize, unpack
from tests.synthetic.plan_checkpoints import LAYOUTS, PLANS, write_checkpoint
from tests.synthetic.tiny_configs import tiny


@pytest.mark.parametrize("bits", (2, 3, 4, 5, 6, 8))
def test_codes_unpack_bit_by_bit(bits: int) -> None:
    values = np.random.default_rng(bits).standard_normal((3, 5, 128))
    words, scales, biases = quantize(values, bits, 64)
    assert np.array_equal(unpacked(words, bits), unpack(words, bits))
    codes = Codes(words, scales.astype(np.float32), biases.astype(np.float32), bits, 64, "F32")
    exact = dequantize(words, scales, biases, bits, 64)
    assert np.abs(as_float32(codes) - exact).max() <= 1e-6 * np.abs(exact).max()


class Folder:
    """A tiny Nemotron's tensors in memory; `read` counts the bytes asked for."""

    def __init__(self, folder: Path, form: str, *, quantized: bool) -> None:
        config = tiny("nemotron_h", num_nextn_predict_layers=0, hybrid_override_pattern="ME", num_hidden_layers=2)
        layout = LAYOUTS["nemotron_h"] if quantized else None
        self.facts = FolderReader().facts(write_checkpoint(folder, config, form=form, quantization=layout))
        told = parse_quantization(self.facts.config)
        self.bound = dict(resolve(PLANS["nemotron_h"](config), self.facts.tensors, told))
        self.sizes: list[int] = []

    def read(self, header: TensorHeader) -> NDArray[Any]:
        self.sizes.append(header.nbytes)
        data = np.fromfile(self.facts.folder / header.file, np.uint8, header.nbytes, offset=header.begin)
        return stored_values(header, data)

    def weights(self, **other: Bound) -> StoredWeights:
        return StoredWeights({**self.bound, **other}, self.facts.tensors, self.read, lambda line: None)


def parts_of(stored: Any) -> list[NDArray[Any]]:
    return [stored.raw] if isinstance(stored, Values) else [stored.words, stored.scales, stored.biases]


@pytest.mark.parametrize(("form", "quantized"), [("hf", False), ("mlx", False), ("mlx", True)])
def test_entries_are_those_of_the_stack_and_are_read_one_by_one(form: str, quantized: bool, tmp_path: Path) -> None:
    folder = Folder(tmp_path / "checkpoint", form, quantized=quantized)
    path = next(path for path in folder.bound if path.endswith("experts.up"))
    whole = folder.weights().stack(path)
    folder.sizes.clear()
    entries = list(folder.weights().entries(path))
    assert len(entries) == whole.shape[0]
    weight = sum(folder.facts.tensors[module.weight].nbytes for module in folder.bound[path].modules)
    assert max(folder.sizes) * whole.shape[0] == weight
    for at, entry in enumerate(entries):
        assert entry.shape == whole.shape[1:] and entry.bias is None
        for one, other in zip(parts_of(entry.stored), parts_of(entry_of(whole.stored, at)), strict=True):
            assert np.array_equal(one, other)


def test_entries_of_a_fused_tensor_are_cut_out_of_their_own_part(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "checkpoint", "mlx", quantized=False)
    path = next(path for path in folder.bound if path.endswith("experts.up"))
    found = folder.bound[path]
    entries, rows, columns = found.slot.shape
    cut = replace(found.source, stored=(entries, rows, columns), cut=(8, 24))
    slot = replace(found.slot, weight=replace(found.slot.weight, shape=(entries, 16, columns)))
    for source in (cut, replace(cut, view=(entries, rows, columns)), replace(cut, axis=1)):
        weights = folder.weights(**{path: replace(found, slot=slot, source=source)})
        whole, each = weights.stack(path).stored, list(weights.entries(path))
        assert all(np.array_equal(parts_of(e.stored)[0], parts_of(whole)[0][at]) for at, e in enumerate(each))
        assert each[0].shape == (16, columns)


def test_entries_stored_the_other_way_round_are_refused_in_the_backends_name(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "checkpoint", "mlx", quantized=False)
    path = next(path for path in folder.bound if path.endswith("experts.up"))
    weights = StoredWeights(
        {path: replace(folder.bound[path], swapped=True)}, folder.facts.tensors, folder.read, print, backend="CUDA"
    )
    with pytest.raises(RefusedError, match="the CUDA backend does not read"):
        next(weights.entries(path))
