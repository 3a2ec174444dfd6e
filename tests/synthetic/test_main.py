"""The command that writes small checkpoints by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensorfold.entrypoints.cli import main as tensorfold
from tests.synthetic.__main__ import main


def test_a_family_and_its_drafter_are_written_and_told_by_info(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "new"), "qwen3_5"]) == 0
    folders = capsys.readouterr().out.splitlines()
    assert folders == [str(tmp_path / "new" / name) for name in ("qwen3_5", "drafter")]
    assert [tensorfold(["info", folder]) for folder in folders] == [0, 0]
    told = capsys.readouterr().out
    assert "family        Qwen3.8-27B" in told and "drafter       DFlash2" in told


def test_a_family_that_is_not_there_is_refused_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path), "qwen9"])
    assert "no family is called qwen9; there are qwen3_5, " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
