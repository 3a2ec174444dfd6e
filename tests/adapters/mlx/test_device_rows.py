"""How wide a window the load check is asked for depends on the machine only where a family says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.filesystem.checkpoints import FolderReader
from tensorfold.adapters.mlx import loader
from tensorfold.adapters.mlx.row_check import Wanted
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.runtime import current
from tensorfold.application.ports.backend import ModelCheckpoint
from tensorfold.domain.families.binding import resolve
from tests.adapters.mlx.tiny_families import tiny_family


class AskedError(Exception):
    """Ends a load where its rows would be checked."""


def test_sixteen_rows_are_asked_for_on_macs_without_tensor_units_and_more_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def check(forward: Any, wanted: Wanted, place: str, say: Any) -> Any:
        asked.append(wanted.chain)
        raise AskedError

    monkeypatch.setattr(loader, "RowCheck", check)
    one = tiny_family(tmp_path, "qwen3_5")
    facts = FolderReader().facts(one.folder)
    bound = resolve(one.plan, facts.tensors, None)
    for device in ("gpu Apple M4 Max", "gpu Apple M5 Max", "cpu Apple M4 Max, 8 threads"):
        runtime = replace(current(), device=device)
        loading = loader.Loading(ModelCheckpoint(one.plan, bound, facts), runtime, lambda line: None)
        with pytest.raises(AskedError):
            loading.checked(CpuRows(), tmp_path / "checks", "tiny", 512, 2)
    assert asked == [16, 128, 128]
