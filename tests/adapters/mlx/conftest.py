"""Tiny models, loaded once a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.mlx.model import MlxModel
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tests.adapters.mlx.models import HALF, SLIDING, SMALL, load, load_through
from tests.synthetic.llama_checkpoints import Layout

BUILT: dict[str, Callable[[Path], MlxModel[Any]]] = {
    "small": lambda folder: load(folder, SMALL),
    "sliding": lambda folder: load(folder, SLIDING),
    "stored": lambda folder: load_through(folder, replace(SLIDING, quantization=Layout(4, 32)), CpuRows(unpack=False)),
    "library_half": lambda folder: load_through(folder, HALF, LibraryRows("bfloat16")),
    "library_sliding": lambda folder: load_through(folder, SLIDING, LibraryRows("float32")),
}


@pytest.fixture(scope="session", params=sorted(BUILT))
def model(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxModel[Any]]:
    loaded = BUILT[request.param](tmp_path_factory.mktemp(request.param))
    yield loaded
    assert loaded.lanes() == ()
    loaded.shutdown()


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlxModel[Any]]:
    loaded = load(tmp_path_factory.mktemp("alone"), SMALL)
    yield loaded
    assert loaded.lanes() == ()
    loaded.shutdown()
