"""The tiny checkpoints whose ops are tested one by one, written once a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.mlx.tiny_families import TinyFamily, tiny_family

_GLM = {
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "indexed_attention"],
    "mlp_layer_types": ["dense", "sparse"],
    "num_nextn_predict_layers": 0,
}
_QWEN = {"num_hidden_layers": 4, "mtp_num_hidden_layers": 0}


def _written(folder: Path, family: str) -> TinyFamily:
    fields = _GLM if family == "glm5_next" else _QWEN
    return tiny_family(folder, family, 5, **fields)


@pytest.fixture(scope="session")
def glm(tmp_path_factory: pytest.TempPathFactory) -> TinyFamily:
    return _written(tmp_path_factory.mktemp("glm"), "glm5_next")


@pytest.fixture(scope="session")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> TinyFamily:
    return _written(tmp_path_factory.mktemp("qwen"), "qwen4_exp")
