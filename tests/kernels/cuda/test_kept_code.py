"""Kept machine code: what is not whole, not named so or not a user's own is not read, and the next write mends it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tensorfold.kernels.cuda import kept_code

CODE = b"\x7fELF" + bytes(14) + (190).to_bytes(2, "little") + b"what a card runs"
NAME, OTHER = "a" * 64, "b" * 64


def place(folder: Path, name: str = NAME) -> Path:
    return folder / f"{name}.cubin"


def test_what_is_kept_is_read_again_under_its_name_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    assert kept_code.read(folder, NAME) is None
    kept_code.write(folder, NAME, CODE)
    assert kept_code.read(folder, NAME) == CODE and kept_code.read(folder, OTHER) is None
    assert [path.name for path in folder.iterdir()] == [place(folder).name]


def test_code_of_another_source_under_this_name_is_not_read(tmp_path: Path) -> None:
    kept_code.write(tmp_path, OTHER, CODE)
    os.rename(place(tmp_path, OTHER), place(tmp_path))
    assert kept_code.read(tmp_path, NAME) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda whole: whole[:-1],
        lambda whole: whole[:20],
        lambda whole: b"",
        lambda whole: whole + b"\0",
        lambda whole: whole[:60] + bytes([whole[60] ^ 1]) + whole[61:],
        lambda whole: b"TFCUBIN2" + whole[8:],
        lambda whole: CODE,
        lambda whole: b"#!/bin/sh",
    ],
)
def test_a_file_that_is_cut_short_changed_or_foreign_is_not_read_and_the_next_write_mends_it(
    spoil: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    kept_code.write(tmp_path, NAME, CODE)
    place(tmp_path).write_bytes(spoil(place(tmp_path).read_bytes()))
    assert kept_code.read(tmp_path, NAME) is None
    kept_code.write(tmp_path, NAME, CODE)
    assert kept_code.read(tmp_path, NAME) == CODE


@pytest.mark.parametrize("code", [b"", b"text", b"\x7fELF", CODE.replace((190).to_bytes(2, "little"), b"\x3e\0", 1)])
def test_what_is_no_code_for_such_a_card_is_not_read(code: bytes, tmp_path: Path) -> None:
    kept_code.write(tmp_path, NAME, code)
    assert place(tmp_path).exists() and kept_code.read(tmp_path, NAME) is None


def test_links_pipes_folders_and_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_code.write(tmp_path, NAME, CODE)
    place(tmp_path, OTHER).symlink_to(place(tmp_path))
    assert kept_code.read(tmp_path, OTHER) is None
    place(tmp_path, OTHER).unlink()
    os.mkfifo(place(tmp_path, OTHER))
    assert kept_code.read(tmp_path, OTHER) is None
    place(tmp_path, "c").mkdir()
    assert kept_code.read(tmp_path, "c") is None
    monkeypatch.setattr(kept_code, "MOST_BYTES", place(tmp_path).stat().st_size - 1)
    assert kept_code.read(tmp_path, NAME) is None


def test_a_file_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_code.write(tmp_path, NAME, CODE)
    real = os.fstat

    def owned(handle: int) -> os.stat_result:
        found = list(real(handle))
        found[4] = os.geteuid() + 1
        return os.stat_result(found)

    monkeypatch.setattr(os, "fstat", owned)
    assert kept_code.read(tmp_path, NAME) is None


def test_a_folder_that_cannot_be_written_keeps_nothing_and_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    kept_code.write(tmp_path / "file", NAME, CODE)

    def full(*paths: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    kept_code.write(tmp_path, NAME, CODE)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
