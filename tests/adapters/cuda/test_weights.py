"""The CUDA backend's reader names itself in refusals, and what no kernel reads is refused before a weight is read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tensorfold.adapters.cuda.loader import load
from tensorfold.adapters.cuda.packed import refuse_unread
from tensorfold.adapters.cuda.weights import WeightReader, read_tensor
from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.application.ports.checkpoints import CheckpointFacts, RefusedError
from tensorfold.application.stored_weights import as_float32
from tensorfold.domain.families import llama
from tensorfold.domain.families.binding import Bound, resolve
from tensorfold.domain.families.storage import parse_quantization
from tensorfold.domain.memory.cuda_holding import room
from tests.synthetic.llama_checkpoints import Layout, TinyLlama
from tests.synthetic.safetensors_file import as_values

SLOT = "layers.1.mlp.down"
MODULE = "model.layers.1.mlp.down_proj.weight"
LLAMA = TinyLlama()


def found(folder: Path, shape: TinyLlama) -> tuple[CheckpointFacts, dict[str, Bound]]:
    facts = FolderReader().facts(shape.write(folder))
    told = llama.plan(facts.config)
    return facts, dict(resolve(told, facts.tensors, parse_quantization(facts.config)))


def test_values_are_those_of_the_file(tmp_path: Path) -> None:
    facts, bound = found(tmp_path, replace(LLAMA, dtype="BF16"))
    read = WeightReader(bound, facts, lambda line: None).matrix(SLOT)
    assert np.array_equal(as_float32(read.stored), as_values(replace(LLAMA, dtype="BF16").tensors()[MODULE]))


def test_a_file_that_shrank_or_went_is_refused_by_name(tmp_path: Path) -> None:
    facts, _ = found(tmp_path, LLAMA)
    header = facts.tensors[MODULE]
    file = tmp_path / header.file
    file.write_bytes(file.read_bytes()[: header.end - 1])
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"down_proj\.weight"):
            read_tensor(tmp_path, header)
        file.unlink(missing_ok=True)


def test_a_matrix_stored_the_other_way_round_is_refused_in_this_backends_name(tmp_path: Path) -> None:
    facts, bound = found(tmp_path, LLAMA)
    weights = WeightReader({SLOT: replace(bound[SLOT], swapped=True)}, facts, lambda line: None)
    with pytest.raises(RefusedError, match="the CUDA backend does not read yet"):
        weights.matrix(SLOT)


def test_groups_and_widths_without_a_kernel_are_refused_from_headers(tmp_path: Path) -> None:
    _, plain = found(tmp_path / "plain", LLAMA)
    refuse_unread(plain)
    _, grouped = found(tmp_path / "groups", replace(LLAMA, quantization=Layout(4, 64)))
    refuse_unread(grouped)
    _, small = found(tmp_path / "small", replace(LLAMA, quantization=Layout(4, 32)))
    with pytest.raises(RefusedError, match="groups of 32 codes"):
        refuse_unread(small)
    _, odd = found(tmp_path / "odd", replace(LLAMA, mlp=96))
    with pytest.raises(RefusedError, match="has 96 inputs"):
        refuse_unread(odd)


def test_a_load_refuses_them_before_it_reads_a_weight_or_asks_for_a_card(tmp_path: Path) -> None:
    small = replace(LLAMA, quantization=Layout(4, 32))
    facts, bound = found(tmp_path, small)
    plan = llama.plan(facts.config)
    with pytest.raises(RefusedError, match="groups of 32 codes"):
        load(
            ModelCheckpoint(plan, bound, replace(facts, folder=tmp_path / "nowhere")),
            name="m", context=64, pools=room(1, 64), cache=tmp_path, on_progress=lambda line: None,
        )  # fmt: skip
