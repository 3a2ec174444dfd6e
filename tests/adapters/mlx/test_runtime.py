"""MLX that is missing or too old is refused in one sentence with the line that installs it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tensorfold.adapters.mlx import runtime
from tensorfold.adapters.mlx.backend import MlxBackend
from tensorfold.application.ports.checkpoints import RefusedError


def pretend(monkeypatch: pytest.MonkeyPatch, version: str | None) -> None:
    """Make MLX be of a version, or absent."""
    module = ModuleType("mlx.core")
    if version is not None:
        module.__version__ = version  # type: ignore[attr-defined]
    find = importlib.import_module

    def find_module(name: str, *rest: Any) -> ModuleType:
        if name != "mlx.core":
            return find(name, *rest)
        if version is None:
            raise ImportError("no such module")
        return module

    monkeypatch.setattr(runtime.importlib, "import_module", find_module)  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", ("0.32.2", "0.32.10", "0.40.0", "1.0.0rc1", "0.32.4.dev20260101+abc"))
def test_new_enough_versions_are_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, version)
    assert MlxBackend(Path("unused")).missing() is None


@pytest.mark.parametrize("version", ("0.32.1", "0.31.9", "0.9.0", "dev", ""))
def test_older_and_unreadable_versions_are_refused_with_the_pip_line(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, version)
    sentence = runtime.missing()
    assert sentence is not None
    assert version in sentence and "0.32.2" in sentence and "pip install -U 'mlx" in sentence


def test_a_missing_mlx_is_refused_before_anything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, None)
    backend = MlxBackend(Path("unused"))
    sentence = backend.missing()
    assert sentence is not None and "pip install" in sentence
    nothing: Any = None
    with pytest.raises(RefusedError, match="not installed"):
        backend.load(nothing, name="m", context=8, max_streams=1, on_progress=print)


def test_the_install_line_is_the_one_of_this_platform() -> None:
    assert ("mlx[cpu]" in runtime.INSTALL) == (sys.platform != "darwin")


def test_the_runtime_names_versions_and_device() -> None:
    found = runtime.current()
    assert found.version.startswith("mlx 0.") and found.memory > 1 << 28
    assert found.cpu == found.device.startswith("cpu ")
    assert ("numpy" in found.version) == found.cpu
