"""Weights are read from the byte ranges of validated headers, exactly; what is not there any more is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx import memory
from tensorfold.adapters.mlx.loader import Loading
from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tensorfold.adapters.mlx.runtime import Runtime, current
from tensorfold.adapters.mlx.weights import Codes, Values, WeightReader, as_float32, read_tensor
from tensorfold.application.loading import describe
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import RefusedError
from tensorfold.domain.families.binding import Bound
from tensorfold.domain.families.tensors import Slot
from tensorfold.kernels.reference.affine import dequantize
from tests.adapters.mlx.models import SMALL
from tests.adapters.mlx.tiny_families import stepped, tiny_family
from tests.synthetic.llama_checkpoints import Layout, TinyLlama
from tests.synthetic.plan_checkpoints import LAYOUTS, Quantized
from tests.synthetic.safetensors_file import as_values

SLOT = "layers.1.mlp.down"
ONE_EXPERT: dict[str, Any] = {
    "num_hidden_layers": 1,
    "layer_types": ["linear_attention"],
    "mlp_layer_types": ["sparse"],
    "n_routed_experts": 1,
    "num_experts_per_tok": 1,
}
MODULE = "model.layers.1.mlp.down_proj"


def reader(folder: Path, shape: TinyLlama, say: list[str] | None = None) -> WeightReader:
    facts = FolderReader().facts(shape.write(folder))
    told = describe(facts, "mlx", None)
    return WeightReader(told.bound, facts, (say if say is not None else []).append)


@pytest.mark.parametrize("dtype", ("F32", "F16", "BF16"))
def test_dense_values_widen_exactly(dtype: str, tmp_path: Path) -> None:
    shape = replace(SMALL, dtype=dtype, shards=3, mlp_bias=True)
    matrix = reader(tmp_path, shape).matrix(SLOT)
    tensors = shape.tensors()
    assert isinstance(matrix.stored, Values) and matrix.bias is not None
    assert (as_float32(matrix.stored) == as_values(tensors[f"{MODULE}.weight"])).all()
    assert (matrix.bias == as_values(tensors[f"{MODULE}.bias"])).all()
    assert matrix.shape == (64, 96)


@pytest.mark.parametrize("bits", (2, 3, 4, 5, 6, 8))
@pytest.mark.parametrize("dtype", ("F32", "F16", "BF16"))
def test_affine_codes_unpack_to_scale_times_code_plus_bias(bits: int, dtype: str, tmp_path: Path) -> None:
    shape = replace(SMALL, dtype=dtype, quantization=Layout(bits, 32))
    matrix = reader(tmp_path, shape).matrix(SLOT)
    tensors = shape.tensors()
    words = tensors[f"{MODULE}.weight"].values
    scales, biases = as_values(tensors[f"{MODULE}.scales"]), as_values(tensors[f"{MODULE}.biases"])
    assert isinstance(matrix.stored, Codes) and (matrix.stored.bits, matrix.stored.group) == (bits, 32)
    expected = dequantize(words, scales, biases, bits, 32)
    assert np.abs(as_float32(matrix.stored) - expected).max() <= 1e-6 * np.abs(expected).max()


def test_a_file_that_shrank_or_went_is_refused_by_name(tmp_path: Path) -> None:
    facts = FolderReader().facts(SMALL.write(tmp_path))
    header = facts.tensors["model.norm.weight"]
    file = tmp_path / header.file
    file.write_bytes(file.read_bytes()[: header.end - 1])
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"model\.norm\.weight"):
            read_tensor(tmp_path, header)
        file.unlink(missing_ok=True)


def test_a_matrix_stored_the_other_way_round_is_refused_where_it_is_multiplied_as_stored(tmp_path: Path) -> None:
    facts = FolderReader().facts(SMALL.write(tmp_path))
    bound = dict(describe(facts, "mlx", None).bound)
    for other in (replace(bound[SLOT], swapped=True), replace(bound[SLOT], modules=bound[SLOT].modules * 2)):
        weights = WeightReader({**bound, SLOT: other}, facts, lambda line: None)
        with pytest.raises(RefusedError, match="does not read yet"):
            weights.matrix(SLOT)


def test_values_are_seen_as_their_source_says(tmp_path: Path) -> None:
    facts = FolderReader().facts(SMALL.write(tmp_path))
    bound = dict(describe(facts, "mlx", None).bound)
    found = bound[SLOT]
    plain = WeightReader(bound, facts, lambda line: None).floats(SLOT)
    rows, columns = plain.shape

    def seen(other: Bound) -> NDArray[np.float32]:
        return WeightReader({**bound, SLOT: other}, facts, lambda line: None).floats(SLOT)

    def shaped(*shape: int) -> Slot:
        return replace(found.slot, weight=replace(found.slot.weight, shape=shape))

    cut = replace(found.source, stored=(rows, columns), cut=(4, 12))
    assert (seen(replace(found, slot=shaped(8, columns), source=cut)) == plain[4:12]).all()
    viewed = replace(found.source, stored=(rows, columns), view=(2, rows // 2, columns), cut=(3, 5))
    halves = plain.reshape(2, rows // 2, columns)
    assert (seen(replace(found, slot=shaped(2, 2, columns), source=viewed)) == halves[:, 3:5]).all()
    assert (seen(replace(found, slot=shaped(columns, rows), swapped=True)) == plain.T).all()
    stacked = replace(found, slot=shaped(2, rows, columns), modules=found.modules * 2)
    assert (seen(stacked) == np.stack([plain, plain])).all()


def test_exponentials_are_read_as_what_they_are_of(tmp_path: Path) -> None:
    facts = FolderReader().facts(SMALL.write(tmp_path))
    bound = dict(describe(facts, "mlx", None).bound)
    found = bound["readout.norm"]
    weight = WeightReader(bound, facts, lambda line: None).floats("readout.norm")
    logged = {**bound, "readout.norm": replace(found, source=replace(found.source, takes_log=True))}
    assert (WeightReader(logged, facts, lambda line: None).floats("readout.norm") == np.log(weight)).all()


def test_a_norm_stored_around_zero_has_one_added(tmp_path: Path) -> None:
    facts = FolderReader().facts(SMALL.write(tmp_path))
    bound = dict(describe(facts, "mlx", None).bound)
    plain = WeightReader(bound, facts, lambda line: None).floats("readout.norm")
    bound["readout.norm"] = replace(bound["readout.norm"], add_one=True)
    assert (WeightReader(bound, facts, lambda line: None).floats("readout.norm") == plain + np.float32(1)).all()


def test_large_checkpoints_tell_how_far_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tensorfold.application.stored_weights._SMALL", 1)
    lines: list[str] = []
    weights = reader(tmp_path, SMALL, lines)
    for path in ("embedding", "readout.norm", "layers.0.mlp.gate", "layers.0.mlp.up", SLOT):
        weights.matrix(path) if path != "readout.norm" else weights.floats(path)
    assert 1 < len(lines) <= 10 and all(line.startswith("reading weights: ") for line in lines)


@pytest.mark.slow
def test_matrices_too_large_to_unpack_stay_as_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = replace(SMALL, quantization=Layout(4, 32))
    facts = FolderReader().facts(shape.write(tmp_path / "checkpoint"))
    told = describe(facts, "mlx", None)

    def load(runtime: Runtime) -> RowOps[Any]:
        loading = Loading(ModelCheckpoint(told.plan, told.bound, facts), runtime, lambda line: None)
        model = loading.model(tmp_path / "checks", name="m", context=64, max_streams=1)
        return model.forward.decoder.ops

    assert "through mlx" not in load(current()).detail
    assert "through mlx" in load(replace(current(), memory=1000)).detail
    monkeypatch.setattr(memory, "_MOST_UNPACKED", 1000)
    assert "through mlx" in load(current()).detail


@pytest.mark.parametrize("quantization", (None, LAYOUTS["glm5_next"]))
def test_a_model_of_one_expert_reads_it_as_a_stack_of_one(quantization: Quantized | None, tmp_path: Path) -> None:
    one = tiny_family(tmp_path, "glm5_next", quantization=quantization, **ONE_EXPERT)
    for ops in (CpuRows(), LibraryRows("float32")):
        forward = one.forward(ops)
        assert np.isfinite(stepped(forward, forward.open(8), [5, 9])).all()
