"""What tests of the whole product start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.synthetic.servable import write_servable


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with the tiny model in it; the caches that a module's commands make in it are shared."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "tiny").mkdir()
    write_servable(folder / "tiny")
    return folder
