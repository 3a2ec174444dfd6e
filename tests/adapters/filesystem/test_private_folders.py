"""Folders of the user alone: what is made, in which mode, and what was there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tensorfold.adapters.filesystem.private_folders import create_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_missing_is_made_private_and_told_the_topmost_first(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        made = create_private(str(tmp_path / "a" / "b" / "c"))
    finally:
        os.umask(before)
    assert made == [str(tmp_path / "a"), str(tmp_path / "a" / "b"), str(tmp_path / "a" / "b" / "c")]
    assert {mode(Path(folder)) for folder in made} == {0o700} and mode(tmp_path) == 0o755
    assert create_private(made[-1]) == []


def test_a_folder_that_another_process_made_meanwhile_is_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.mkdir

    def late(path: str, mode: int) -> None:
        real(path, 0o750)
        real(path, mode)

    monkeypatch.setattr(os, "mkdir", late)
    assert create_private(str(tmp_path / "a")) == []
    assert mode(tmp_path / "a") & 0o700 == 0o700


def test_a_file_in_a_folders_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(NotADirectoryError):
        create_private(str(tmp_path / "a" / "b"))
