"""A weight file that a family names beside its shards is read with them, and held to the same rules."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.application.ports.checkpoints import RefusedError
from tests.synthetic.plan_checkpoints import write_checkpoint
from tests.synthetic.safetensors_file import as_stored, file_bytes
from tests.synthetic.tiny_configs import tiny

SIDE = "mtp-4bit.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "nemotron", tiny("nemotron_h"), 3, "mlx")


def test_its_tensors_have_the_familys_names(folder: Path) -> None:
    facts = FolderReader().facts(folder)
    beside = [tensor for tensor in facts.tensors.values() if tensor.file == SIDE]
    assert beside and all(tensor.name.startswith("mtp.") for tensor in beside)


@pytest.mark.slow
def test_without_it_the_rest_is_read(folder: Path) -> None:
    whole = FolderReader().facts(folder)
    (folder / SIDE).unlink()
    left = FolderReader().facts(folder)
    assert set(left.tensors) == {name for name, tensor in whole.tensors.items() if tensor.file != SIDE}
    assert left.digest != whole.digest


@pytest.mark.slow
def test_a_broken_one_is_refused_by_name(folder: Path) -> None:
    (folder / SIDE).write_bytes(b"\0" * 12)
    with pytest.raises(RefusedError, match=SIDE):
        FolderReader().facts(folder)


def test_it_may_not_hold_a_tensor_that_a_shard_holds(folder: Path) -> None:
    (folder / SIDE).write_bytes(file_bytes({"head.weight": as_stored(np.zeros(4), "F32")}))
    named = FolderReader().facts(folder).tensors
    assert "mtp.head.weight" in named
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shard = sorted(set(index["weight_map"].values()))[0]
    index["weight_map"] = {"mtp.head.weight": shard}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / shard).write_bytes(file_bytes({"mtp.head.weight": as_stored(np.zeros(4), "F32")}))
    with pytest.raises(RefusedError, match="and so does mtp-4bit"):
        FolderReader().facts(folder)
