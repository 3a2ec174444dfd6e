"""Every listed family, on tiny weights: windows, trees, company and partial keeps leave the bits of one-row steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tensorfold.adapters.mlx.rows import RowOps
from tensorfold.adapters.mlx.rows_cpu import CpuRows
from tensorfold.adapters.mlx.rows_library import LibraryRows
from tests.adapters.mlx.family_walk import FamilyWalk
from tests.adapters.mlx.tiny_families import tiny_family
from tests.synthetic.plan_checkpoints import LAYOUTS

pytestmark = pytest.mark.slow
# Together at least 5,000 tokens; `python -m tests.prove.families` walks further.
TOKENS = {"qwen3_5": 1_600, "nemotron_h": 1_600, "gemma4": 1_000, "glm5_next": 450, "qwen4_exp": 450}
WIDEST = 16


def walk(folder: Path, family: str, ops: RowOps[Any], tokens: int, *, affine: bool, seed: int) -> str:
    one = tiny_family(folder, family, seed, quantization=LAYOUTS[family] if affine else None)
    walked = FamilyWalk(one.forward(ops), one.plan.head.vocabulary, WIDEST, seed).run(tokens)
    assert walked.tokens >= tokens or walked.difference
    return walked.difference


@pytest.mark.parametrize("family", TOKENS)
def test_whatever_windows_rows_come_in_they_and_the_state_are_the_serial_ones(family: str, tmp_path: Path) -> None:
    assert walk(tmp_path, family, CpuRows(), TOKENS[family], affine=False, seed=11) == ""


@pytest.mark.parametrize("family", TOKENS)
def test_so_they_are_on_affine_weights_and_through_the_library(family: str, tmp_path: Path) -> None:
    assert walk(tmp_path / "cpu", family, CpuRows(), 40, affine=True, seed=12) == ""
    # The library multiplies one row at a time on a CPU, so its rows are equal there as well.
    assert walk(tmp_path / "library", family, LibraryRows("float32"), 40, affine=False, seed=13) == ""
